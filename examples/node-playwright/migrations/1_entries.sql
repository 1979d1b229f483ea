CREATE TABLE entry (
    id   int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    text text NOT NULL CHECK (text <> '')
);

INSERT INTO entry (name, text) VALUES ('Ada', 'The view from the tower!');
