-- +goose Up
ALTER TABLE orders ALTER COLUMN id TYPE bigint;
