class Pgfresh < Formula
  desc "Fresh PostgreSQL database for every test"
  homepage "@REPOSITORY@"
  version "@VERSION@"
  license "MIT"

  on_linux do
    on_intel do
      url "@RELEASE@/pgfresh-@VERSION@-x86_64-linux.tar.gz"
      sha256 "@DIGEST_X86_64_LINUX@"
    end
    on_arm do
      url "@RELEASE@/pgfresh-@VERSION@-aarch64-linux.tar.gz"
      sha256 "@DIGEST_AARCH64_LINUX@"
    end
  end

  # Experimental: this build is cross-compiled, and its logic is tested on Linux, but nobody has run it on a Mac.
  on_macos do
    depends_on macos: :ventura

    on_intel do
      url "@RELEASE@/pgfresh-@VERSION@-x86_64-darwin.tar.gz"
      sha256 "@DIGEST_X86_64_DARWIN@"
    end
    on_arm do
      url "@RELEASE@/pgfresh-@VERSION@-aarch64-darwin.tar.gz"
      sha256 "@DIGEST_AARCH64_DARWIN@"
    end
  end

  def install
    bin.install "pgfresh"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/pgfresh.bash" => "pgfresh"
    zsh_completion.install "completions/_pgfresh"
    fish_completion.install "completions/pgfresh.fish"
    doc.install "README.md", "THIRD-PARTY-LICENSES.txt"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/pgfresh --version")
  end
end
