require_relative "test_helper"

class ProgrammeTest < DatabaseTest
  def test_two_films_are_shown
    assert_equal ["Metropolis", "Safety Last!"], films
  end

  def test_the_programme_can_be_emptied
    @db.exec("TRUNCATE showings, tickets")
    assert_empty films
  end

  def test_the_schema_can_change
    @db.exec("ALTER TABLE showings ADD COLUMN length interval")
    assert_equal 2, @db.exec("SELECT length FROM showings").ntuples
  end

  def test_no_other_test_has_changed_the_schema
    assert_raises(PG::UndefinedColumn) { @db.exec("SELECT length FROM showings") }
  end

  private

  def films
    @db.exec("SELECT film FROM showings ORDER BY film").column_values(0)
  end
end
