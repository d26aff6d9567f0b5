"""Everything that checks the product; `unit` mirrors its packages, the other folders cut across them."""
