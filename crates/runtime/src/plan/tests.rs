use super::*;
use crate::device::{About, Buffer, Step, Tensor, Usage};
use crate::error::Error;
use crate::profile::Profile;
use proptest::prelude::*;
use trueup_blocks::DType;
use trueup_graph::op::{Arithmetic, Arrange, Gated, KvStore, MulMat};
use trueup_graph::{Input, Op, Shape, StateKind};

/// A device that says what it computes, and computes nothing.
struct Paper {
    name: &'static str,
    lacks: &'static [&'static str],
    free: Option<u64>,
}

impl Paper {
    fn refuses<T>(&self) -> Result<T> {
        Err(Error::Device { device: self.name.to_owned(), problem: "is made of paper".to_owned() })
    }
}

impl Device for Paper {
    fn about(&self) -> About {
        About {
            name: self.name.to_owned(),
            description: "paper".to_owned(),
            simulated: true,
            memory: self.free.map(|free| (1 << 40, free)),
            memory_limit: None,
            batch_invariant: false,
        }
    }

    fn supports(&self, op: &Op, _: &[TensorType], _: &TensorType) -> std::result::Result<Profile, String> {
        if self.lacks.contains(&op.name()) { Err(format!("has no {}", op.name())) } else { Ok(Profile::EXACT) }
    }

    fn alloc(&self, _: &TensorType, _: Usage) -> Result<Buffer> {
        self.refuses()
    }

    fn upload(&self, _: &[u8], _: &Tensor) -> Result<()> {
        self.refuses()
    }

    fn download(&self, _: &Tensor, _: &mut [u8]) -> Result<()> {
        self.refuses()
    }

    fn execute(&self, _: &[Step]) -> Result<()> {
        self.refuses()
    }

    fn sync(&self) -> Result<()> {
        self.refuses()
    }
}

const ALL: Paper = Paper { name: "all", lacks: &[], free: None };
const NO_ADD: Paper = Paper { name: "no-add", lacks: &["add"], free: None };

/// A graph of `steps`: each takes two earlier values, by number, and an operator: 0 add, 1 swiglu, 2 reshape.
fn graph(steps: &[(usize, usize, u8)]) -> Graph {
    let mut graph = Graph::default();
    let tokens = graph.input(Input::Tokens, TensorType::new(DType::I32, &[3]));
    let table = graph.weight("table", TensorType::new(DType::F32, &[100, 8]));
    let mut values = vec![graph.node("rows", None, Op::get_rows(DType::F32), &[table, tokens]).unwrap()];
    for (index, (first, second, kind)) in steps.iter().enumerate() {
        let (a, b) = (values[first % values.len()], values[second % values.len()]);
        let name = format!("node-{index}");
        let made = match kind % 3 {
            0 => graph.node(name, None, Arithmetic::Add.into(), &[a, b]),
            1 => graph.node(name, None, Gated::Swiglu.into(), &[a, b]),
            _ => graph.node(name, None, Op::reshape(&[100, 3]), &[a]),
        };
        values.push(made.unwrap());
    }
    graph
}

/// Goes through a plan as execution does, and remembers which value each part of each arena holds.
fn walk(plan: &Plan) -> std::result::Result<(), String> {
    let mut arenas: Vec<Vec<(usize, usize, ValueId)>> = vec![Vec::new(); plan.devices()];
    let graph = plan.graph();
    let write = |arenas: &mut Vec<Vec<_>>, device: usize, place: ValueId, content: ValueId| {
        let Place::Arena(start) = plan.place(place, device) else { return };
        let end = start + graph.value(place).ty.bytes();
        arenas[device].retain(|(from, to, _)| end <= *from || *to <= start);
        arenas[device].push((start, end, content));
    };
    let read = |arenas: &[Vec<(usize, usize, ValueId)>], device: usize, value: ValueId| {
        let Place::Arena(start) = plan.place(value, device) else { return Ok(()) };
        let held = arenas[device].iter().find(|(from, _, _)| *from == start).map(|(_, _, content)| *content);
        let expected = root(graph, value);
        if held == Some(expected) {
            Ok(())
        } else {
            Err(format!("{} was overwritten by {held:?}", graph.value(value).name))
        }
    };
    for piece in plan.pieces() {
        for (value, from) in &piece.copies {
            read(&arenas, *from, *value)?;
            write(&mut arenas, piece.device, *value, root(graph, *value));
        }
        for node in &graph.nodes()[piece.nodes.clone()] {
            node.inputs.iter().try_for_each(|input| read(&arenas, piece.device, *input))?;
            if !node.op.is_alias() {
                write(&mut arenas, piece.device, node.output, node.output);
                node.inputs.iter().try_for_each(|input| read(&arenas, piece.device, *input))?;
            }
        }
    }
    let last = graph.nodes().last().map(|node| node.output);
    let device = plan.nodes().last().map_or(0, |node| node.device);
    last.map_or(Ok(()), |last| read(&arenas, device, last))
}

proptest! {
    #[test]
    fn nothing_is_overwritten_while_it_is_needed(steps in proptest::collection::vec((0usize..20, 0usize..20, 0u8..3), 0..40)) {
        for devices in [vec![&ALL as &dyn Device], vec![&NO_ADD as &dyn Device, &ALL]] {
            let plan = Plan::new(graph(&steps), &devices).unwrap();
            let walked = walk(&plan);
            prop_assert!(walked.is_ok(), "{}\n{}", walked.unwrap_err(), plan.report());
        }
    }
}

#[test]
fn an_operator_that_the_main_device_lacks_falls_back_visibly() {
    let plan = Plan::new(graph(&[(0, 0, 1), (1, 1, 0), (2, 1, 1)]), &[&NO_ADD, &ALL]).unwrap();
    let devices: Vec<usize> = plan.nodes().iter().map(|node| node.device).collect();
    assert_eq!(devices, [0, 0, 1, 0]);
    assert_eq!(plan.nodes()[2].fell_back.as_deref(), Some("has no add"));
    let report = plan.report();
    assert_eq!((report.pieces, report.copies), (3, 2));
    let text = report.to_string();
    assert!(text.contains("copy node-0 f32[100, 3] to all") && text.contains("fell back: has no add"), "{text}");
}

#[test]
fn more_than_a_hundred_pieces_are_called_a_fault() {
    let pieces = |adds: usize| {
        let steps: Vec<(usize, usize, u8)> = (0..adds).flat_map(|_| [(0, 0, 0), (0, 0, 1)]).collect();
        Plan::new(graph(&steps), &[&NO_ADD, &ALL]).unwrap().report()
    };
    for (adds, expected, is_fault) in [(49, 99, false), (50, 101, true)] {
        let report = pieces(adds);
        assert_eq!(report.pieces, expected);
        assert_eq!(report.to_string().contains("\nproblem: more than 100 segments"), is_fault, "{expected} pieces");
    }
}

#[test]
fn nodes_that_no_device_computes_are_counted_with_the_reasons_for_the_first() {
    let error = Plan::new(graph(&[(0, 0, 0), (1, 1, 0)]), &[&NO_ADD]).unwrap_err().to_string();
    assert_eq!(error, "device no-add: cannot compute 2 nodes, first node-0: has no add");
    let error = Plan::new(graph(&[(0, 0, 0)]), &[&NO_ADD, &NO_ADD]).unwrap_err().to_string();
    assert_eq!(error, "devices no-add, no-add: cannot compute node-0: no-add: has no add; no-add: has no add");
}

#[test]
fn the_cache_stays_on_one_device() {
    let mut graph = Graph::default();
    let state = graph.state("kv_k-0", StateKind::Rows, TensorType::new(DType::F32, &[4, 64, 1]));
    let table = graph.weight("table", TensorType::new(DType::F32, &[4, 8]));
    let rows = graph.input(Input::KvRows, TensorType::new(DType::I32, &[2]));
    let x = graph.node("x", None, Op::get_rows(DType::F32), &[table, rows]).unwrap();
    let sum = graph.node("sum", None, Arithmetic::Add.into(), &[x, x]).unwrap();
    let cache = graph.node("cache_k-0", None, KvStore.into(), &[state, sum, rows]).unwrap();
    graph.node("kq-0", None, Op::reshape(&[256]), &[cache]).unwrap();
    let no_store = Paper { name: "no-store", lacks: &["kv_store"], free: None };
    let plan = Plan::new(graph, &[&no_store, &ALL]).unwrap();
    let devices: Vec<usize> = plan.nodes().iter().map(|node| node.device).collect();
    assert_eq!(devices, [0, 0, 1, 1]);
    assert_eq!(plan.place(cache, 1), Place::Own(state));
    assert_eq!(plan.report().devices[1].kv_bytes, 1024);
}

#[test]
fn a_view_is_seen_in_a_copy_of_its_source() {
    let mut graph = graph(&[]);
    let rows = graph.find("rows").unwrap();
    let part = Arrange::View { offset: 100, strides: [1, 100, 0, 0], shape: Shape::new(&[50, 2]) };
    let part = graph.node("part", None, part.into(), &[rows]).unwrap();
    let flipped = graph.node("flipped", None, Arrange::Transpose.into(), &[part]).unwrap();
    graph.node("sum", None, Arithmetic::Add.into(), &[flipped, flipped]).unwrap();
    let plan = Plan::new(graph, &[&NO_ADD, &ALL]).unwrap();
    assert_eq!(plan.pieces()[1].copies, [(rows, 0)], "all 300 elements, of which 100 are shown");
    assert_eq!(plan.place(flipped, 1), plan.place(rows, 1));
    assert!(plan.arena_bytes(1) >= 1200 + 400, "{}", plan.arena_bytes(1));
    walk(&plan).unwrap();
}

/// Rows of a table, layers that each add a weight of 4000 bytes to them and keep the sum in a cache of 1024, and a sum
/// behind them.
fn layered(layers: usize) -> Graph {
    let mut graph = graph(&[]);
    let mut x = graph.find("rows").unwrap();
    let rows = graph.input(Input::KvRows, TensorType::new(DType::I32, &[3]));
    for layer in 0..layers {
        let weight = graph.weight(&format!("blk.{layer}.weight"), TensorType::new(DType::F32, &[100, 10]));
        let state = graph.state(&format!("kv_k-{layer}"), StateKind::Rows, TensorType::new(DType::F32, &[100, 64, 1]));
        graph.node(format!("cache-{layer}"), Some(layer), KvStore.into(), &[state, x, rows]).unwrap();
        let y = graph.node(format!("y-{layer}"), Some(layer), MulMat.into(), &[weight, x]).unwrap();
        let y = graph.node(
            format!("wide-{layer}"),
            Some(layer),
            Arrange::Repeat { shape: Shape::new(&[100, 3]) }.into(),
            &[y],
        );
        x = graph.node(format!("l_out-{layer}"), Some(layer), Arithmetic::Add.into(), &[x, y.unwrap()]).unwrap();
    }
    graph.node("result", None, Arithmetic::Add.into(), &[x, x]).unwrap();
    graph
}

#[test]
fn layers_fill_devices_one_behind_the_other() {
    let with = |name, free| Paper { name, lacks: &[], free: Some(free) };
    // A layer takes 4000 bytes of its weight and 25600 of its cache; the rows 3200 of their table, and some results
    // beside them.
    for (first, second, expected) in [
        (40_000, 110_000, "0 1 1 1 2"),
        (80_000, 10_000, "0 0 2 2 2"),
        (10_000, 75_000, "1 1 2 2 2"),
        (500, 500, "2 2 2 2 2"),
        (1 << 30, 0, "0 0 0 0 0"),
    ] {
        let (a, b) = (with("a", first), with("b", second));
        let devices: [&dyn Device; 3] = [&a, &b, &ALL];
        let graph = layered(5);
        let homes = LayerHomes::fill(&graph, &devices, 3).unwrap();
        let plan = Plan::over(Fused::none(graph), &devices, 3, &homes).unwrap();
        let layers: Vec<String> = (0..5)
            .map(|layer| {
                let place = plan.graph().nodes().iter().position(|node| node.layer == Some(layer)).unwrap();
                plan.nodes()[place].device.to_string()
            })
            .collect();
        assert_eq!(layers.join(" "), expected, "{first} and {second} bytes:\n{}", plan.report());
        walk(&plan).unwrap();
        for (device, free) in plan.report().devices.iter().zip([first, second]) {
            let bytes = device.weight_bytes + device.kv_bytes + device.input_bytes + device.arena_bytes;
            assert!(device.nodes == 0 || bytes as u64 <= free, "{}: {bytes} of {free}", device.name);
        }
        assert!(plan.nodes().iter().all(|node| node.fell_back.is_none()));
    }
}

#[test]
fn a_node_that_its_layers_device_lacks_goes_behind_those_with_layers() {
    let a = Paper { name: "a", lacks: &["mul_mat"], free: Some(40_000) };
    let devices: [&dyn Device; 3] = [&a, &NO_ADD, &ALL];
    let graph = layered(3);
    let homes = LayerHomes::fill(&graph, &devices, 2).unwrap();
    let plan = Plan::over(Fused::none(graph), &devices, 2, &homes).unwrap();
    let of = |name: &str| {
        let place = plan.graph().nodes().iter().position(|node| node.name == name).unwrap();
        (plan.nodes()[place].device, plan.nodes()[place].fell_back.as_deref())
    };
    assert_eq!(of("y-0"), (2, Some("has no mul_mat")), "and not to the device of other layers");
    assert_eq!(of("y-1"), (1, None));
    assert_eq!(of("l_out-1"), (2, Some("has no add")));
}
