"""The data layer of a small online shop."""
