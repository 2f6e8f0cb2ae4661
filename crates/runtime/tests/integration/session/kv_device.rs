//! Devices that leave the KV cache to another one.

use super::{Without, bits, device, entries, model, prompts};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::device::{Bounded, Cacheless, Device};
use trueup_runtime::plan::Plan;
use trueup_runtime::{Session, SessionOptions, Weights};

/// The processor under another name, which computes everything but what no model here has.
fn card(name: &'static str) -> Arc<dyn Device> {
    Arc::new(Without { inner: device("cpu"), op: name })
}

fn cacheless(name: &'static str) -> Arc<dyn Device> {
    Arc::new(Cacheless::new(card(name)))
}

fn nodes_on_cache(plan: &Plan) -> Vec<(&'static str, usize)> {
    let nodes = plan.graph().nodes().iter().zip(plan.nodes());
    let on_cache = nodes.filter(|(node, _)| node.op.name().starts_with("kv_"));
    on_cache.map(|(node, planned)| (node.op.name(), planned.device)).collect()
}

#[test]
fn the_cache_lies_where_attention_is_computed_with_the_same_bits() {
    let (_folder, model) = model(DType::Q8_0, false);
    let options = SessionOptions { sequences: 4, ..SessionOptions::default() };
    let plain = Arc::new(Weights::new(model.clone(), device("cpu"), None));
    let expected = bits(&mut Session::new(plain.clone(), &options).unwrap(), &entries(&prompts()));
    let kv_bytes = Session::plan(&plain, &options, 1, 1, 1).unwrap().report().devices[0].kv_bytes;
    let cases = [
        (vec![cacheless("card")], Some(device("cpu"))),
        (vec![cacheless("card"), device("cpu")], None),
        (
            vec![
                Arc::new(Cacheless::new(Arc::new(Bounded::new(card("card"), 1 << 14)))) as Arc<dyn Device>,
                cacheless("second"),
            ],
            Some(device("cpu")),
        ),
    ];
    for (devices, fallback) in cases {
        let host = devices.len() - usize::from(fallback.is_none());
        let weights = Arc::new(Weights::over(model.clone(), devices, fallback));
        let plan = Session::plan(&weights, &options, 1, 1, 1).unwrap();
        let layer = [("kv_store", host), ("kv_store", host), ("kv_attention", host)];
        assert_eq!(nodes_on_cache(&plan), [layer, layer].concat(), "two layers, fused where the cache is");
        let report = plan.report();
        let held: Vec<usize> = report.devices.iter().map(|device| device.kv_bytes).collect();
        assert_eq!(held.iter().sum::<usize>(), kv_bytes);
        assert_eq!(held[host], kv_bytes);
        assert!(report.to_string().contains("fell back: the KV cache is configured to stay on the host"));
        assert!(bits(&mut Session::new(weights, &options).unwrap(), &entries(&prompts())) == expected);
    }
}

#[test]
fn a_cache_of_which_a_device_computes_a_part_is_not_fused_elsewhere() {
    let (_folder, model) = model(DType::F32, false);
    let partial = Arc::new(Without { inner: device("cpu"), op: "kv_mix" });
    let weights = Weights::new(model, partial, Some(device("cpu")));
    let plan = Session::plan(&weights, &SessionOptions::default(), 1, 1, 1).unwrap();
    assert!(nodes_on_cache(&plan).iter().all(|(op, _)| *op != "kv_attention"));
}
