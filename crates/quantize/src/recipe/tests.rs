use super::*;

fn tensor(name: &str, shape: &[u64]) -> TensorInfo {
    TensorInfo::new(name, shape, DType::F32).unwrap()
}

fn choose(recipe: &Recipe, tensors: &[TensorInfo]) -> Result<Vec<Choice>, RuleError> {
    recipe.choose(tensors, &ModelFacts::default())
}

fn types(recipe: &Recipe, tensors: &[TensorInfo]) -> Vec<DType> {
    choose(recipe, tensors).unwrap().iter().map(|choice| choice.dtype).collect()
}

fn notes(recipe: &Recipe, tensors: &[TensorInfo]) -> Vec<String> {
    choose(recipe, tensors).unwrap().into_iter().map(|choice| choice.note).collect()
}

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn four_bit_types_keep_the_ends_in_q8_0() {
    let tensors = [
        tensor("token_embd.weight", &[64, 8]),
        tensor("blk.0.ffn_up.weight", &[64, 8]),
        tensor("blk.0.attn_norm.weight", &[64]),
    ];
    let of = |recipe: Recipe| types(&recipe, &tensors);
    assert_eq!(of(Recipe::new(Some(DType::Q4_0))), [DType::Q8_0, DType::Q4_0, DType::F32]);
    assert_eq!(of(Recipe::new(Some(DType::Q4_0)).pure(true)), [DType::Q4_0, DType::Q4_0, DType::F32]);
    assert_eq!(of(Recipe::new(Some(DType::Q5_1))), [DType::Q5_1, DType::Q5_1, DType::F32]);
    assert_eq!(of(Recipe::new(None)), [DType::F32; 3]);
    let expected = [
        "q4_0 uses q8_0 for the token embedding, which is also the output head",
        "",
        "kept as f32: a one-dimensional tensor",
    ];
    assert_eq!(notes(&Recipe::new(Some(DType::Q4_0)), &tensors), expected);
}

#[test]
fn tables_that_programs_read_as_f32_stay_f32() {
    let names = [
        "blk.0.ffn_gate_inp.weight",
        "blk.0.ffn_gate_inp_shexp.weight",
        "blk.0.ssm_a",
        "blk.0.ssm_d",
        "blk.0.ssm_conv1d.weight",
        "token_types.weight",
        "enc.blk.0.attn_rel_b.weight",
        "position_embd.weight",
        "blk.0.attn_q_norm.weight",
        "blk.0.attn_k_norm.weight",
    ];
    for dtype in [DType::Bf16, DType::F16, DType::Q8_0, DType::Q4_0] {
        let tensors = names.map(|name| tensor(name, &[64, 8]));
        assert_eq!(types(&Recipe::new(Some(dtype)), &tensors), [DType::F32; 10], "{dtype}");
        let others = [tensor("blk.0.ffn_gate.weight", &[64, 8]), tensor("blk.0.attn_rel.weight", &[64, 8])];
        assert_eq!(types(&Recipe::new(Some(dtype)), &others), [dtype; 2], "{dtype}");
    }
}

/// llama-quantize copies them too, whatever their type is.
#[test]
fn norms_of_heads_and_positions_are_copied_from_another_file() {
    for (source, dtype) in [(DType::Bf16, DType::F16), (DType::F16, DType::Bf16), (DType::Bf16, DType::Q8_0)] {
        let tensors = ["position_embd.weight", "blk.0.attn_q_norm.weight"]
            .map(|name| TensorInfo::new(name, &[64, 8], source).unwrap());
        assert_eq!(types(&Recipe::new(Some(dtype)), &tensors), [source; 2], "{source} as {dtype}");
        assert_eq!(types(&Recipe::new(Some(DType::F32)), &tensors), [DType::F32; 2], "{source}");
    }
}

#[test]
fn the_first_rule_that_matches_wins_and_an_idle_rule_is_refused() {
    let tensors = [tensor("blk.0.a.weight", &[64, 8]), tensor("blk.1.a.weight", &[64, 8])];
    let recipe = Recipe::new(Some(DType::Q4_0)).rules(rules(&["blk\\.1=f16", "blk=q8_0"]));
    assert_eq!(types(&recipe, &tensors), [DType::Q8_0, DType::F16]);
    let idle = Recipe::new(Some(DType::Q4_0)).rules(rules(&["blk.7=f16", "head=f32"]));
    let idle = choose(&idle, &tensors).unwrap_err();
    let expected = "--rule blk.7=f16: no tensor name matches; --rule head=f32: no tensor name matches; `trueup inspect` \
                    lists the names";
    assert_eq!(idle.0, expected);
}

#[test]
fn rows_that_are_not_whole_blocks_get_smaller_blocks_or_f16_or_are_refused() {
    let cases = [
        (
            DType::Q8_0,
            33,
            DType::F16,
            "stored as f16: the row length 33 is not a multiple of 32, the block size of q8_0",
        ),
        (
            DType::Q4K,
            96,
            DType::Q5_0,
            "stored as q5_0: the row length 96 is not a multiple of 256, the block size of q4_k",
        ),
        (
            DType::Q6K,
            96,
            DType::Q8_0,
            "stored as q8_0: the row length 96 is not a multiple of 256, the block size of q6_k",
        ),
        (
            DType::Q6K,
            33,
            DType::F16,
            "stored as f16: the row length 33 is not a multiple of 256, the block size of q6_k",
        ),
    ];
    for (dtype, columns, expected, note) in cases {
        let tensors = [tensor("blk.0.attn_q.weight", &[columns, 8])];
        let choice = &choose(&Recipe::new(Some(dtype)), &tensors).unwrap()[0];
        assert_eq!((choice.dtype, choice.note.as_str()), (expected, note));
        let refused = choose(&Recipe::new(Some(dtype)).strict(true), &tensors).unwrap_err().0;
        assert_eq!(
            refused,
            format!("blk.0.attn_q.weight would be {note}; change the type or the rule, or omit --strict")
        );
    }
}

#[test]
fn strict_groups_tensors_by_reason() {
    let of_128 = |number: u64| tensor(&format!("blk.{number}.ffn_up.weight"), &[128, 8]);
    let mut tensors: Vec<TensorInfo> = (0..43).map(of_128).collect();
    tensors.push(tensor("blk.0.ffn_gate.weight", &[96, 8]));
    let reason = |columns: u64| {
        format!("would be stored as q5_0: the row length {columns} is not a multiple of 256, the block size of q4_k")
    };
    let refused = choose(&Recipe::new(Some(DType::Q4K)).pure(true).strict(true), &tensors).unwrap_err().0;
    let expected = format!(
        "43 tensors (first blk.0.ffn_up.weight) {}; blk.0.ffn_gate.weight {}; change the type or the rule, or omit \
         --strict",
        reason(128),
        reason(96)
    );
    assert_eq!(refused, expected);
}

#[test]
fn no_rule_quantizes_one_dimension_or_changes_integers() {
    let mut tensors =
        [tensor("blk.0.m.weight", &[64, 8]), tensor("blk.0.n.weight", &[64]), tensor("blk.0.one.weight", &[64, 1])];
    tensors[1] = TensorInfo::new("blk.0.n.weight", &[64], DType::F16).unwrap();
    let table = TensorInfo { dtype: DType::I32, ..tensor("blk.0.table.weight", &[64, 8]) };
    let with = |dtype: Option<DType>, rule: &str| Recipe::new(dtype).rules(rules(&[rule]));
    for dtype in [None, Some(DType::Q4_0)] {
        let all = [tensors.as_slice(), std::slice::from_ref(&table)].concat();
        let recipe = with(dtype, "blk=q8_0");
        assert_eq!(types(&recipe, &all), [DType::Q8_0, DType::F16, DType::F32, DType::I32]);
        let one = |kept: DType| format!("kept as {kept} instead of q8_0: a one-dimensional tensor is not quantized");
        let integers = "kept as i32, which is not a type of weights, instead of q8_0".to_owned();
        assert_eq!(notes(&recipe, &all), [String::new(), one(DType::F16), one(DType::F32), integers.clone()]);
        let refused = choose(&recipe.strict(true), &all).unwrap_err().0;
        let names_all =
            refused.contains(&format!("blk.0.n.weight would be {}", one(DType::F16))) && refused.contains(&integers);
        assert!(names_all, "{refused}");
        // A rule can give such a tensor another float type.
        assert_eq!(types(&with(dtype, "blk=bf16"), &tensors), [DType::Bf16; 3]);
    }
}

#[test]
fn no_tensor_grows_unless_the_whole_model_becomes_a_float_type() {
    let small = |dtype: DType| [TensorInfo::new("blk.0.attn_q.weight", &[256, 8], dtype).unwrap()];
    let cases = [
        (Recipe::new(Some(DType::Q8_0)), DType::Q4_0, DType::Q4_0, "kept as q4_0: q8_0 is larger"),
        (Recipe::new(Some(DType::Q6K)), DType::Mxfp4, DType::Mxfp4, "kept as mxfp4: q6_k is larger"),
        (
            Recipe::new(Some(DType::Q8_0)).rules(rules(&["attn=f32"])),
            DType::F16,
            DType::F16,
            "kept as f16: f32 is larger",
        ),
        (Recipe::new(None).rules(rules(&["attn=q8_0"])), DType::Q4_0, DType::Q4_0, "kept as q4_0: q8_0 is larger"),
        (Recipe::new(Some(DType::F32)), DType::Q4_0, DType::F32, ""),
        (
            Recipe::new(Some(DType::F16)).rules(rules(&["attn=f32"])),
            DType::Bf16,
            DType::Bf16,
            "kept as bf16: f32 is larger",
        ),
    ];
    for (recipe, source, dtype, note) in cases {
        let choice = choose(&recipe, &small(source)).unwrap().remove(0);
        assert_eq!((choice.dtype, choice.note.as_str()), (dtype, note), "{source}");
    }
}

#[test]
fn rules_that_cannot_be_read_say_why() {
    let types: Vec<&str> = written_types().map(DType::name).collect();
    let unknown = format!("expected one of the types {} after the last =, found q9", types.join(", "));
    for (text, reason) in [
        ("abc", "expected REGEX=TYPE, such as ffn_down=q8_0"),
        ("a=q9", unknown.as_str()),
        ("ab(c=q8_0", "invalid regular expression before the last `=`: unclosed group at character 3"),
        ("a\n(=q8_0", "invalid regular expression before the last `=`: unclosed group"),
    ] {
        assert_eq!(text.parse::<Rule>().unwrap_err().0, reason);
    }
}

#[test]
fn every_type_with_a_codec_can_be_written() {
    let with_codec = DType::all().filter(|dtype| dtype.codec().is_some() && *dtype != DType::F64);
    let (with_codec, mut written): (Vec<DType>, Vec<DType>) = (with_codec.collect(), written_types().collect());
    written.sort();
    assert_eq!(with_codec, written);
}

#[test]
fn options_for_the_ends_are_checked_before_anything_is_written() {
    let ends = [tensor("token_embd.weight", &[272, 8]), tensor("output.weight", &[288, 8])];
    let tied = [tensor("token_embd.weight", &[256, 8])];
    let none = [tensor("blk.0.attn_q.weight", &[256, 8])];
    let recipe = || Recipe::new(Some(DType::Q4K));
    let cases: [(Recipe, &[TensorInfo], &str); 5] = [
        (
            recipe().token_embedding(Some(DType::Q4K)),
            &ends,
            "--token-embedding-type q4_k: expected rows of token_embd.weight with a multiple of 256 elements, found 272; \
            use f16",
        ),
        (
            recipe().output(Some(DType::Q6K)),
            &ends,
            "--output-tensor-type q6_k: expected rows of output.weight with a multiple of 256 elements, found 288; use q8_0",
        ),
        (
            recipe().output(Some(DType::Q6K)),
            &none,
            "--output-tensor-type q6_k: expected a tensor output.weight, found none; omit the option",
        ),
        (
            recipe().token_embedding(Some(DType::Q6K)),
            &none,
            "--token-embedding-type q6_k: expected a tensor token_embd.weight, found none; omit the option",
        ),
        (
            recipe().leave_output(true),
            &tied,
            "--leave-output-tensor: expected a tensor output.weight, found none; use --token-embedding-type",
        ),
    ];
    for (recipe, tensors, sentence) in cases {
        assert_eq!(choose(&recipe, tensors).unwrap_err().0, sentence);
    }
    assert_eq!(types(&recipe().output(Some(DType::Q8_0)), &tied), [DType::Q8_0]);
}

#[test]
fn every_scheme_is_found_by_its_name_and_type() {
    let names: Vec<&str> = table::SCHEMES.iter().map(Scheme::name).collect();
    for scheme in &table::SCHEMES {
        assert_eq!(names.iter().filter(|name| **name == scheme.name()).count(), 1, "{scheme}");
        assert_eq!(Scheme::from_name(&scheme.name().to_uppercase()).unwrap().name(), scheme.name());
    }
    for (name, found) in [("Q3_K", "q3_k_m"), ("q4_k", "q4_k_m"), ("Q5_K", "q5_k_m"), ("q6_K", "q6_k")] {
        assert_eq!(Scheme::from_name(name).unwrap().name(), found);
        assert_eq!(Scheme::from(DType::from_name(name).unwrap()).name(), found);
    }
    assert!(Scheme::from_name("q4_k_xl").is_none() && Scheme::from_name("i32").is_none());
    assert_eq!(Scheme::from(DType::Nvfp4).base(), DType::Nvfp4);
}
