"""Makes the statistics of a large shop.

pgfresh run --postgres 15 -- python statistics/make.py > statistics/production.json

A real project reads its statistics from production: pgfresh template import --statistics URL.
This example has no production, so this script inserts a two-hundredth of the rows, reads their
statistics, and multiplies them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

FACTOR = 200

# Tables that don't grow with the shop.
SMALL = {
    "alembic_version", "carriers", "categories", "countries", "coupons", "currencies", "invoice_counters", "settings",
    "shipping_rates", "suppliers", "tax_rates", "warehouses",
}  # fmt: skip

# Columns that have as many distinct values as a growing table has rows.
KEYS = {
    "address_id", "cart_id", "customer_id", "default_address_id", "id", "number", "order_id", "order_line_id",
    "payment_id", "product_id", "return_id", "shipment_id", "variant_id", "wishlist_id",
}  # fmt: skip

MOST_COMMON, HISTOGRAM = 1, 2


def grow_column(column: dict[str, Any]) -> None:
    """Give a key column as many distinct values as the large table has."""
    if column["distinct"] > 0:
        column["distinct"] *= FACTOR
    # With so many distinct values, no value is common.
    column["slots"] = [slot for slot in column.get("slots", []) if slot["kind"] != MOST_COMMON]
    for slot in column["slots"]:
        if slot["kind"] == HISTOGRAM and column["type_name"] in ("bigint", "integer"):
            slot["values"] = [str(int(value) * FACTOR) for value in slot["values"]]


def grow(relation: dict[str, Any]) -> None:
    for field in ("pages", "analyzed_pages", "all_visible"):
        relation[field] *= FACTOR
    if relation["rows"] > 0:
        relation["rows"] *= FACTOR
    # pgfresh estimates the height of the large index.
    relation.pop("height", None)
    for column in relation.get("columns", []):
        if column["column"] in KEYS:
            grow_column(column)


def main() -> None:
    url = os.environ["DATABASE_URL"]
    rows = Path(__file__).with_name("rows.sql").read_text()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(rows.encode())
        # A few bounds are enough for an example, and keep the file small.
        connection.execute("SET default_statistics_target = 10")
        connection.execute("VACUUM ANALYZE")
    read = subprocess.run(
        ["pgfresh", "template", "import", "--statistics", url], check=True, stdout=subprocess.PIPE
    )
    statistics = json.loads(read.stdout)
    for relation in statistics["relations"]:
        if relation.get("table", relation["name"]) not in SMALL:
            grow(relation)
    json.dump(statistics, sys.stdout, indent=1)
    sys.stdout.write("\n")


main()
