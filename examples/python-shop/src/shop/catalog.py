"""Products, their variants and the category tree."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, exists, func, literal, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from .db import atomic, violates
from .errors import CategoryCycle, SkuTaken
from .models import Category, Product, ProductCategory, Supplier, TaxCategory, Variant


def slugify(name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "item"


def _free_slug(session: Session, model: type[Product] | type[Category], name: str) -> str:
    base = slugify(name)
    taken = set(session.scalars(select(model.slug).where(model.slug.startswith(base))))
    if base not in taken:
        return base
    number = 2
    while f"{base}-{number}" in taken:
        number += 1
    return f"{base}-{number}"


@atomic
def create_product(
    session: Session,
    name: str,
    *,
    description: str = "",
    tax_category: TaxCategory = TaxCategory.STANDARD,
    supplier: Supplier | None = None,
    categories: Sequence[Category] = (),
) -> Product:
    product = Product(
        name=name,
        slug=_free_slug(session, Product, name),
        description=description,
        tax_category=tax_category,
        supplier_id=supplier.id if supplier else None,
    )
    session.add(product)
    session.flush()
    for category in categories:
        session.add(ProductCategory(product_id=product.id, category_id=category.id))
    return product


@atomic
def add_variant(
    session: Session,
    product: Product,
    sku: str,
    *,
    weight_grams: int = 0,
    attributes: dict[str, Any] | None = None,
) -> Variant:
    variant = Variant(
        product_id=product.id, sku=sku, weight_grams=weight_grams, attributes=attributes or {}
    )
    try:
        with session.begin_nested():
            session.add(variant)
    except IntegrityError as error:
        if violates(error, "variants_sku_key"):
            raise SkuTaken(sku) from error
        raise
    return variant


@atomic
def deactivate(session: Session, product: Product) -> None:
    """Take a product and its variants off sale, without deleting them."""
    product.active = False
    for variant in product.variants:
        variant.active = False


def _next_position(session: Session, parent_id: int | None) -> int:
    siblings = Category.parent_id.is_not_distinct_from(parent_id)
    return (session.scalar(select(func.max(Category.position)).where(siblings)) or 0) + 1


@atomic
def add_category(session: Session, name: str, parent: Category | None = None) -> Category:
    """Add a category after the last of its siblings."""
    parent_id = parent.id if parent else None
    category = Category(
        name=name,
        slug=_free_slug(session, Category, name),
        parent_id=parent_id,
        position=_next_position(session, parent_id),
    )
    session.add(category)
    return category


@atomic
def reorder_categories(session: Session, ordered: Sequence[Category]) -> None:
    """Order siblings like this list. The unique constraint is deferred until the commit."""
    for position, category in enumerate(ordered, start=1):
        category.position = position


def _subtree(root_id: int) -> Select[tuple[int]]:
    tree = select(Category.id).where(Category.id == root_id).cte("subtree", recursive=True)
    tree = tree.union_all(select(Category.id).join(tree, Category.parent_id == tree.c.id))
    return select(tree.c.id)


@atomic
def move_category(session: Session, category: Category, parent: Category | None) -> None:
    """Move a category, with its subcategories, to a different parent."""
    if parent is not None and parent.id in set(session.scalars(_subtree(category.id))):
        raise CategoryCycle(f"{category.slug} cannot move below {parent.slug}")
    parent_id = parent.id if parent else None
    category.position = _next_position(session, parent_id)
    category.parent_id = parent_id


def category_path(session: Session, category: Category) -> list[str]:
    """Return the names from the root of the tree down to `category`."""
    path = (
        select(Category.id, Category.parent_id, Category.name, literal(0).label("depth"))
        .where(Category.id == category.id)
        .cte("path", recursive=True)
    )
    path = path.union_all(
        select(Category.id, Category.parent_id, Category.name, path.c.depth + 1).join(
            path, Category.id == path.c.parent_id
        )
    )
    return list(session.scalars(select(path.c.name).order_by(path.c.depth.desc())))


def products_in(session: Session, category: Category) -> list[Product]:
    """Return the active products in a category or below it, without duplicates, newest first."""
    member = exists().where(
        ProductCategory.product_id == Product.id,
        ProductCategory.category_id.in_(_subtree(category.id)),
    )
    return list(
        session.scalars(
            select(Product)
            .where(Product.active, member)
            .order_by(Product.created_at.desc(), Product.id.desc())
        )
    )


def search(session: Session, words: str, limit: int = 20) -> list[Product]:
    """Return matching active products, best first. A match in the name counts more."""
    query = func.websearch_to_tsquery("english", words)
    return list(
        session.scalars(
            select(Product)
            .where(Product.active, Product.search.bool_op("@@")(query))
            .order_by(func.ts_rank(Product.search, query).desc(), Product.id)
            .limit(limit)
        )
    )


def variants_with(session: Session, attributes: dict[str, Any]) -> list[Variant]:
    """Return the active variants that have all these attributes."""
    return list(
        session.scalars(
            select(Variant)
            .where(Variant.active, Variant.attributes.contains(attributes))
            .order_by(Variant.sku)
        )
    )
