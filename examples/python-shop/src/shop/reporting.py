"""Reports for the people who run the shop, in plain SQL, because that is clearest."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy import text
from sqlalchemy.orm import Session

T = TypeVar("T")


def _rows(session: Session, row_type: type[T], sql: str, **parameters: Any) -> list[T]:
    result = session.execute(text(sql), parameters)
    return [row_type(**row) for row in result.mappings()]


@dataclass(frozen=True)
class Day:
    day: date
    orders: int
    revenue: int
    running_total: int
    average: Decimal


def daily_revenue(session: Session, first: date, last: date, currency: str = "EUR") -> list[Day]:
    """Return each day in a period, even without orders, with its three-day average."""
    return _rows(
        session,
        Day,
        """
        SELECT
            d::date AS day,
            count(o.id) AS orders,
            coalesce(sum(o.total), 0)::bigint AS revenue,
            sum(coalesce(sum(o.total), 0)) OVER (ORDER BY d)::bigint AS running_total,
            round(avg(coalesce(sum(o.total), 0)) OVER (
                ORDER BY d ROWS BETWEEN 2 PRECEDING AND CURRENT ROW
            ), 2) AS average
        FROM generate_series(
            CAST(:first AS timestamp), CAST(:last AS timestamp), interval '1 day'
        ) d
        LEFT JOIN orders o
            ON (o.placed_at AT TIME ZONE 'UTC')::date = d::date
            AND o.currency_code = :currency
            AND o.status <> 'cancelled'
        GROUP BY d ORDER BY d
        """,
        first=first,
        last=last,
        currency=currency,
    )


@dataclass(frozen=True)
class Seller:
    category: str
    rank: int
    product: str
    pieces: int
    share: Decimal


def best_sellers(session: Session, per_category: int = 3) -> list[Seller]:
    """Return each category's best-selling products, and their share of the pieces sold."""
    return _rows(
        session,
        Seller,
        """
        SELECT category, rank, product, pieces, share FROM (
            SELECT
                c.name AS category,
                p.name AS product,
                sum(l.quantity) AS pieces,
                rank() OVER (PARTITION BY c.id ORDER BY sum(l.quantity) DESC) AS rank,
                round(sum(l.quantity) / sum(sum(l.quantity)) OVER (PARTITION BY c.id), 3)
                    AS share
            FROM order_lines l
            JOIN orders o ON o.id = l.order_id AND o.status <> 'cancelled'
            JOIN variants v ON v.id = l.variant_id
            JOIN products p ON p.id = v.product_id
            JOIN product_categories pc ON pc.product_id = p.id
            JOIN categories c ON c.id = pc.category_id
            GROUP BY c.id, p.id
        ) ranked
        WHERE rank <= :per_category
        ORDER BY category, rank, product
        """,
        per_category=per_category,
    )


@dataclass(frozen=True)
class CustomerValue:
    email: str
    orders: int
    spent: int
    days_between: Decimal | None
    half: int


def customer_values(session: Session) -> list[CustomerValue]:
    """Return buyers by their spending minus refunds, and how often they have ordered."""
    return _rows(
        session,
        CustomerValue,
        """
        WITH purchases AS (
            SELECT
                o.customer_id,
                b.captured - b.refunded AS spent,
                o.placed_at - lag(o.placed_at) OVER (
                    PARTITION BY o.customer_id ORDER BY o.placed_at
                ) AS gap
            FROM orders o JOIN order_balances b ON b.order_id = o.id
            WHERE b.captured > 0
        )
        SELECT
            c.email,
            count(*) AS orders,
            sum(p.spent)::bigint AS spent,
            round(extract(epoch FROM avg(p.gap))::numeric / 86400, 1) AS days_between,
            ntile(2) OVER (ORDER BY sum(p.spent) DESC, c.id) AS half
        FROM purchases p JOIN customers c ON c.id = p.customer_id
        GROUP BY c.id ORDER BY spent DESC, c.id
        """,
    )


@dataclass(frozen=True)
class Month:
    month: date
    revenue: int
    growth: Decimal | None


def monthly_growth(session: Session, currency: str = "EUR") -> list[Month]:
    """Return the revenue per month, and the change from the previous month in percent."""
    return _rows(
        session,
        Month,
        """
        SELECT
            month,
            revenue,
            round(100.0 * (revenue - lag(revenue) OVER w)
                  / nullif(lag(revenue) OVER w, 0), 1) AS growth
        FROM (
            SELECT
                date_trunc('month', placed_at AT TIME ZONE 'UTC')::date AS month,
                sum(total)::bigint AS revenue
            FROM orders WHERE currency_code = :currency AND status <> 'cancelled'
            GROUP BY 1
        ) months
        WINDOW w AS (ORDER BY month) ORDER BY month
        """,
        currency=currency,
    )


@dataclass(frozen=True)
class WarehouseValue:
    warehouse: str
    pieces: int
    value: int


def stock_value(session: Session) -> list[WarehouseValue]:
    """Return the value of each warehouse's stock at the lowest supply cost, with a grand total."""
    return _rows(
        session,
        WarehouseValue,
        """
        SELECT
            coalesce(w.code, 'total') AS warehouse,
            coalesce(sum(s.on_hand), 0)::bigint AS pieces,
            coalesce(sum(s.on_hand * o.cost), 0)::bigint AS value
        FROM warehouses w
        LEFT JOIN stock s ON s.warehouse_id = w.id
        LEFT JOIN LATERAL (
            SELECT min(cost) AS cost FROM supplier_offers WHERE variant_id = s.variant_id
        ) o ON true
        GROUP BY ROLLUP (w.code) ORDER BY grouping(w.code), w.code
        """,
    )
