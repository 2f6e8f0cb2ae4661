//! Which tensor becomes what, and the stream of a file through the block codecs.
