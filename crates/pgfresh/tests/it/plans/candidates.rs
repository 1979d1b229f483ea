//! Candidate indexes cost about what real indexes cost.
