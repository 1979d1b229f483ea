# Sells each seat of a showing once.
class Cinema
  class Taken < StandardError; end

  def initialize(db)
    @db = db
  end

  # Sells a ticket. Returns its number.
  def sell(film, seat)
    sold = @db.exec_params(<<~SQL, [film, seat])
      INSERT INTO tickets (showing, seat)
      SELECT id, $2::int FROM showings WHERE film = $1 AND $2::int BETWEEN 1 AND seats
      RETURNING number
    SQL
    raise ArgumentError, "#{film} has no seat #{seat}" if sold.ntuples.zero?

    sold[0]["number"].to_i
  rescue PG::UniqueViolation
    raise Taken, "seat #{seat} is taken"
  end

  def sold(film)
    @db.exec_params(<<~SQL, [film])[0]["count"].to_i
      SELECT count(*) FROM tickets JOIN showings ON showings.id = showing WHERE film = $1
    SQL
  end
end
