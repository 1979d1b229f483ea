//! A running PostgreSQL server that we own: installation, settings, boot, stop.
