//! Compares every intermediate tensor of a model with an oracle and says what is wrong.
