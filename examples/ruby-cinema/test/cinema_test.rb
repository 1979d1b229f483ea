require_relative "test_helper"
require_relative "../lib/cinema"

class CinemaTest < DatabaseTest
  def setup
    super
    @cinema = Cinema.new(@db)
  end

  def test_the_first_ticket_is_number_1
    assert_equal 1, @cinema.sell("Metropolis", 7)
    assert_equal 1, @cinema.sold("Metropolis")
  end

  def test_the_house_begins_empty
    assert_equal 0, @cinema.sold("Metropolis")
    assert_equal 1, @cinema.sell("Metropolis", 7)
  end

  def test_a_seat_is_sold_once
    @cinema.sell("Safety Last!", 1)
    assert_raises(Cinema::Taken) { @cinema.sell("Safety Last!", 1) }
    assert_equal 1, @cinema.sold("Safety Last!")
  end

  def test_a_seat_that_is_not_there
    assert_raises(ArgumentError) { @cinema.sell("Safety Last!", 3) }
  end

  def test_the_last_seat_at_once_from_several_sessions
    numbers = Array.new(4) do
      Thread.new do
        session = PG.connect(dbname: @name)
        Cinema.new(session).sell("Safety Last!", 2)
      rescue Cinema::Taken
        nil
      ensure
        session&.close
      end
    end.map(&:value)
    assert_equal 1, numbers.compact.size
  end

  def test_films_are_committed_and_stay_here
    @db.exec("INSERT INTO showings (film, seats) VALUES ('The General', 10)")
    assert_equal 1, @cinema.sell("The General", 10)
  end
end
