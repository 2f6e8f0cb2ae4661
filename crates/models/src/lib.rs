//! Model architectures as data: names, hyper-parameters and the graph of each.
