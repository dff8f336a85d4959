# `cargo xtask package --url URL` fills in the address and the sum of the source archive.
class Quintet < Formula
  desc "Small, durable, fast queue server that speaks many protocols"
  url "@URL@"
  version "@UPSTREAM@"
  sha256 "@SHA256@"
  license any_of: ["Apache-2.0", "MIT"]

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/server")
    system bin/"quintet", "man", "--dir", man1
    generate_completions_from_executable(bin/"quintet", "completions")
  end

  service do
    run [opt_bin/"quintet", "serve", "--data", var/"quintet"]
    keep_alive crashed: true
  end

  test do
    port = free_port
    server = spawn bin/"quintet", "serve", "--data", testpath/"data",
                   "--listen", "beanstalk=127.0.0.1:#{port}"
    sleep 0.1 until quiet_system bin/"quintet", "queues", "--data", testpath/"data"
    system bin/"quintet", "put", "--data", testpath/"data", "work", "hello"
    assert_equal "hello", shell_output("#{bin}/quintet take --data #{testpath}/data work")
  ensure
    Process.kill "TERM", server
    Process.wait server
  end
end
