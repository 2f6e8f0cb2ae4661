//! The syntax tree of a template. Chains of operators are lists, so that its depth is that of the brackets and blocks.

/// A literal value.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Box<str>),
}

/// An operator between two numbers or texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

/// An operator that gives true or false.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

/// An expression.
#[derive(Debug)]
pub(super) enum Expression {
    Literal(Literal),
    Name(Box<str>),
    List(Vec<Expression>),
    Tuple(Vec<Expression>),
    Dict(Vec<(Expression, Expression)>),
    Not(Box<Expression>),
    Negative(Box<Expression>),
    Positive(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    /// Operators of one precedence, from left to right.
    Chain(Box<Expression>, Vec<(Arithmetic, Expression)>),
    Concatenation(Vec<Expression>),
    /// `a < b < c` holds when each pair does.
    Comparison(Box<Expression>, Vec<(Comparison, Expression)>),
    /// Conditions with their values, then the value without a condition.
    Condition(Vec<(Expression, Expression)>, Option<Box<Expression>>),
    Postfix(Box<Expression>, Vec<Suffix>),
}

/// What follows an operand.
#[derive(Debug)]
pub(super) enum Suffix {
    Attribute(Box<str>),
    Item(Expression),
    Slice(Box<[Option<Expression>; 3]>),
    Call(CallArguments),
    Filter(Box<str>, CallArguments),
    Test { name: Box<str>, arguments: CallArguments, negated: bool },
}

/// Arguments of a call, as written.
#[derive(Default, Debug)]
pub(super) struct CallArguments {
    pub(super) positional: Vec<Expression>,
    pub(super) named: Vec<(Box<str>, Expression)>,
    /// `*arguments`
    pub(super) list: Option<Box<Expression>>,
    /// `**arguments`
    pub(super) dict: Option<Box<Expression>>,
}

/// What a value is assigned to.
#[derive(Debug)]
pub(super) enum Target {
    Name(Box<str>),
    Attribute(Box<str>, Box<str>),
    Tuple(Vec<Target>),
}

/// A statement or text, with its line.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: u32,
    pub(super) kind: NodeKind,
}

#[derive(Debug)]
pub(super) enum NodeKind {
    Text(Box<str>),
    Print(Expression),
    If(Vec<(Expression, Vec<Node>)>, Vec<Node>),
    For(Box<For>),
    Set(Target, Expression),
    /// The text of a block, after filters.
    SetBlock(Target, Vec<Suffix>, Vec<Node>),
    Macro(Box<Macro>),
    /// A call with a block that it can insert with `caller()`.
    Call(Box<Macro>, Expression),
    Filter(Vec<Suffix>, Vec<Node>),
    With(Vec<(Target, Expression)>, Vec<Node>),
    /// A block with variables of its own: `generation` and `block`.
    Scope(Vec<Node>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) iterable: Expression,
    pub(super) test: Option<Expression>,
    pub(super) recursive: bool,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Box<str>,
    pub(super) parameters: Vec<(Box<str>, Option<Expression>)>,
    pub(super) body: Vec<Node>,
}
