[inputs: ["*.exs", "{lib,test}/**/*.{ex,exs}"]]
