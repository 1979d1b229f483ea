import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from shop import catalog
from shop.errors import CategoryCycle, SkuTaken
from shop.models import Category, ProductImage


@pytest.fixture
def tree(session):
    """Clothes > (Shirts > Polo, Trousers), and Books."""
    clothes = catalog.add_category(session, "Clothes")
    shirts = catalog.add_category(session, "Shirts", clothes)
    trousers = catalog.add_category(session, "Trousers", clothes)
    polo = catalog.add_category(session, "Polo", shirts)
    books = catalog.add_category(session, "Books")
    return {c.slug: c for c in (clothes, shirts, trousers, polo, books)}


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Blue  T-Shirt!", "blue-t-shirt"),
        ("Caf\u00e9 Cr\u00e8me", "cafe-creme"),
        ("\u732b", "item"),
    ],
)
def test_slugify(name, slug):
    assert catalog.slugify(name) == slug


def test_equal_names_get_different_slugs(make):
    slugs = [make.product("Blue Shirt").slug for _ in range(3)]
    assert slugs == ["blue-shirt", "blue-shirt-2", "blue-shirt-3"]


def test_slug_of_a_longer_name_is_not_in_the_way(make):
    make.product("Lamp shade")
    assert make.product("Lamp").slug == "lamp"


def test_sku_is_unique_over_all_products(session, make):
    make.variant("A-1")
    with pytest.raises(SkuTaken):
        catalog.add_variant(session, make.product(), "A-1")


def test_negative_weight_is_not_taken_for_a_used_sku(session, make):
    with pytest.raises(IntegrityError, match="variants_weight_grams_check"):
        catalog.add_variant(session, make.product(), "A-1", weight_grams=-1)


def test_deactivated_product_disappears_with_its_variants(session, make, tree):
    product = make.product("Polo shirt", categories=[tree["polo"]])
    variant = make.variant(product=product, attributes={"size": "M"})
    catalog.deactivate(session, product)
    assert not variant.active
    assert catalog.products_in(session, tree["polo"]) == []
    assert catalog.search(session, "polo") == []
    assert catalog.variants_with(session, {"size": "M"}) == []


def test_category_path(session, tree):
    assert catalog.category_path(session, tree["polo"]) == ["Clothes", "Shirts", "Polo"]
    assert catalog.category_path(session, tree["books"]) == ["Books"]


def test_new_categories_come_last(tree):
    assert (tree["clothes"].position, tree["books"].position) == (1, 2)
    assert (tree["shirts"].position, tree["trousers"].position) == (1, 2)
    assert tree["polo"].position == 1


def test_siblings_change_places(session, tree):
    catalog.reorder_categories(session, [tree["trousers"], tree["shirts"]])
    ordered = session.scalars(
        select(Category.slug)
        .where(Category.parent_id == tree["clothes"].id)
        .order_by(Category.position)
    ).all()
    assert ordered == ["trousers", "shirts"]


def test_moving_a_category_takes_its_children_along(session, tree):
    catalog.move_category(session, tree["shirts"], tree["books"])
    assert catalog.category_path(session, tree["polo"]) == ["Books", "Shirts", "Polo"]
    catalog.move_category(session, tree["shirts"], None)
    assert catalog.category_path(session, tree["polo"]) == ["Shirts", "Polo"]
    assert tree["shirts"].position == 3


@pytest.mark.parametrize("target", ["clothes", "shirts", "polo"])
def test_category_cannot_move_below_itself(session, tree, target):
    with pytest.raises(CategoryCycle):
        catalog.move_category(session, tree["clothes"], tree[target])
    assert tree["clothes"].parent_id is None


def test_products_of_a_category_include_those_below_once(session, make, tree):
    polo = make.product("Polo shirt", categories=[tree["polo"], tree["shirts"]])
    jeans = make.product("Jeans", categories=[tree["trousers"]])
    make.product("Novel", categories=[tree["books"]])
    assert catalog.products_in(session, tree["clothes"]) == [jeans, polo]
    assert catalog.products_in(session, tree["shirts"]) == [polo]


def test_search_prefers_the_name(session, make):
    in_text = make.product("Table", description="goes with a lamp")
    in_name = make.product("Lamp", description="gives light")
    make.product("Chair")
    assert catalog.search(session, "lamp") == [in_name, in_text]


def test_search_knows_word_forms_and_exclusion(session, make):
    running = make.product("Running shoes")
    make.product("Runner carpet")
    assert catalog.search(session, "run shoe") == [running]
    assert catalog.search(session, "run -shoes") == []
    assert catalog.search(session, '"shoes running"') == []


def test_search_follows_a_change_of_name(session, make):
    product = make.product("Sofa")
    product.name = "Couch"
    session.commit()
    assert catalog.search(session, "sofa") == []
    assert catalog.search(session, "couch") == [product]


def test_variants_by_attributes(session, make):
    small = make.variant("S", attributes={"size": "S", "colour": "red"})
    medium = make.variant("M", attributes={"size": "M", "colour": "red", "care": ["cold"]})
    assert catalog.variants_with(session, {"colour": "red"}) == [medium, small]
    assert catalog.variants_with(session, {"colour": "red", "size": "S"}) == [small]
    assert catalog.variants_with(session, {"care": ["cold"]}) == [medium]
    assert catalog.variants_with(session, {"size": "XL"}) == []


def test_images_of_a_product_have_distinct_positions(session, make):
    product = make.product()
    session.add_all(
        ProductImage(product_id=product.id, position=1, path=path) for path in ("a.png", "b.png")
    )
    with pytest.raises(IntegrityError, match="product_images_product_id_position_key"):
        session.commit()


def test_update_of_a_product_moves_its_time(session, make):
    product = make.product()
    before = product.updated_at
    product.description = "new"
    session.commit()
    assert product.updated_at > before
    assert product.created_at < product.updated_at
