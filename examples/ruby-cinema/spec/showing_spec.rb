require_relative "spec_helper"

class Showing < ActiveRecord::Base; end

RSpec.describe Showing do
  it "gets number 3, because the migrations make two" do
    expect(Showing.create!(film: "The General", seats: 10).id).to eq 3
  end

  it "gets number 3 again" do
    expect(Showing.create!(film: "The General", seats: 10).id).to eq 3
  end

  it "commits for real" do
    Showing.transaction { Showing.delete_all }
    expect(Showing.count).to eq 0
  end

  it "is there again in the next test" do
    expect(Showing.pluck(:film)).to contain_exactly("Metropolis", "Safety Last!")
  end
end
