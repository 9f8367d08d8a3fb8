import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { connect, createServer } from "node:tls";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { doorkeeper } from "#lib/key.ts";
import { openCertificate, openSigner, type ServerCertificate } from "../../infra/keys.ts";

let parent: string;
let folder: string;
beforeEach(async () => {
  parent = await mkdtemp(join(tmpdir(), "postern-keys-"));
  folder = join(parent, ".postern");
});
afterEach(() => rm(parent, { recursive: true }));

const contents = async () => {
  const files = (await readdir(folder)).sort();
  return Object.fromEntries(
    await Promise.all(files.map(async (file) => [file, await readFile(join(folder, file), "utf8")])),
  );
};

/** A handshake as the API server would make it: with this CA alone, for this name. */
const handshake = async ({ ca, cert, key }: ServerCertificate, name: string): Promise<string> => {
  const server = createServer({ cert, key }, (socket) => socket.end());
  server.on("tlsClientError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  // For an address there is no server name, and Node checks the certificate against `host`.
  const { checkServerIdentity } = await import("node:tls");
  const client = connect({
    port,
    host: "127.0.0.1",
    ca,
    checkServerIdentity: (_, certificate) => checkServerIdentity(name, certificate),
  });
  try {
    await once(client, "secureConnect");
    return "verified";
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? "";
  } finally {
    client.destroy();
    server.close();
  }
};

describe("the signing key", () => {
  it("is made once, for its owner alone", async () => {
    const first = await openSigner(folder);
    const before = await contents();
    const second = await openSigner(folder);
    assert.deepEqual([second.publicKey, second.segment("a", 1)], [first.publicKey, first.segment("a", 1)]);
    assert.deepEqual(await contents(), before);
    assert.deepEqual(Object.keys(before), ["signing.key"]);
    assert.equal((await stat(folder)).mode & 0o777, 0o700);
    assert.equal((await stat(join(folder, "signing.key"))).mode & 0o777, 0o600);
  });

  it("signs what functions admit", async () => {
    const { publicKey, segment } = await openSigner(folder);
    const admit = doorkeeper(publicKey, () => [1, 2]);
    assert.match(segment("prod-eu", 1), /^prod-eu\.[A-Za-z0-9_-]{86}$/);
    assert.deepEqual(admit(segment("prod-eu", 2)), { cluster: "prod-eu", key: `${publicKey.slice(0, 8)}.2` });
    assert.equal(admit(segment("prod-eu", 3)), undefined);
  });

  it("is not replaced where it can't be read", async () => {
    await openSigner(folder);
    await writeFile(join(folder, "signing.key"), "torn");
    await assert.rejects(openSigner(folder));
    assert.deepEqual(await contents(), { "signing.key": "torn" });
  });
});

describe("the certificate", () => {
  it("is made once, for its owner alone", async () => {
    const first = await openCertificate(folder, "127.0.0.1");
    const before = await contents();
    assert.deepEqual(await openCertificate(folder, "127.0.0.1"), first);
    assert.deepEqual(await contents(), before);
    assert.deepEqual(before, {
      "ca.crt": first.ca,
      "ca.key": before["ca.key"],
      "server.crt": first.cert,
      "server.key": first.key,
    });
    for (const file of Object.keys(before)) assert.equal((await stat(join(folder, file))).mode & 0o777, 0o600, file);
    assert.equal((await stat(folder)).mode & 0o777, 0o700);
  });

  const hosts: [string, string[], string[]][] = [
    ["127.0.0.1", ["127.0.0.1", "::1", "localhost"], ["10.1.2.3", "postern.example"]],
    ["10.1.2.3", ["10.1.2.3", "127.0.0.1", "localhost"], ["10.1.2.4"]],
    ["postern.example", ["postern.example", "localhost"], ["other.example", "a.postern.example"]],
  ];
  for (const [host, names, others] of hosts)
    it(`for ${host} is what a real handshake verifies`, async () => {
      const certificate = await openCertificate(folder, host);
      for (const name of names) assert.equal(await handshake(certificate, name), "verified", name);
      for (const name of others) assert.equal(await handshake(certificate, name), "ERR_TLS_CERT_ALTNAME_INVALID", name);
    });

  it("is verified by its own CA alone", async () => {
    const certificate = await openCertificate(folder, "127.0.0.1");
    const { ca } = await openCertificate(join(parent, "other"), "127.0.0.1");
    assert.notEqual(await handshake({ ...certificate, ca }, "127.0.0.1"), "verified");
  });

  it("is made anew by the same CA when the host changes", async () => {
    const first = await openCertificate(folder, "127.0.0.1");
    const second = await openCertificate(folder, "10.1.2.3");
    assert.equal(second.ca, first.ca);
    assert.notEqual(second.cert, first.cert);
    assert.equal(await handshake(second, "10.1.2.3"), "verified");
    assert.deepEqual(await openCertificate(folder, "10.1.2.3"), second);
  });

  it("lasts less than the 825 days that some clients allow, its CA longer", async () => {
    const { ca, cert } = await openCertificate(folder, "127.0.0.1");
    const days = (pem: string) => (Date.parse(new X509Certificate(pem).validTo) - Date.now()) / 86_400_000;
    assert.ok(days(cert) > 300 && days(cert) < 825 && days(ca) > 3000);
    assert.ok(new X509Certificate(ca).ca && !new X509Certificate(cert).ca);
  });

  it("is made anew where its key is another's", async () => {
    const first = await openCertificate(folder, "127.0.0.1");
    const other = await openCertificate(join(parent, "other"), "127.0.0.1");
    await writeFile(join(folder, "server.key"), other.key);
    const second = await openCertificate(folder, "127.0.0.1");
    assert.equal(second.ca, first.ca);
    assert.equal(await handshake(second, "127.0.0.1"), "verified");
  });

  it("is made anew where it is torn", async () => {
    await openCertificate(folder, "127.0.0.1");
    await writeFile(join(folder, "server.crt"), "-----BEGIN CERTIFICATE-----\nMIIB");
    assert.equal(await handshake(await openCertificate(folder, "127.0.0.1"), "127.0.0.1"), "verified");
  });

  it("is made anew where half of it is gone", async () => {
    await openCertificate(folder, "127.0.0.1");
    await rm(join(folder, "server.key"));
    assert.equal(await handshake(await openCertificate(folder, "127.0.0.1"), "127.0.0.1"), "verified");
  });
});

describe("several processes at once", () => {
  it("agree on the signing key and the CA, and leave a certificate that works", async () => {
    const keys = JSON.stringify(new URL("../../infra/keys.ts", import.meta.url).href);
    const script = `
      const { openSigner, openCertificate } = await import(${keys});
      const folder = ${JSON.stringify(folder)};
      const [signer, { ca }] = await Promise.all([openSigner(folder), openCertificate(folder, "127.0.0.1")]);
      process.stdout.write(JSON.stringify([signer.publicKey, ca]));`;
    const cwd = fileURLToPath(new URL("../..", import.meta.url));
    const run = () => promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { cwd });
    const outputs = (await Promise.all(Array.from({ length: 4 }, run))).map(({ stdout }) => stdout);
    const certificate = await openCertificate(folder, "127.0.0.1");
    const { publicKey } = await openSigner(folder);
    for (const output of outputs) assert.deepEqual(JSON.parse(output), [publicKey, certificate.ca]);
    assert.equal(await handshake(certificate, "127.0.0.1"), "verified");
    assert.deepEqual((await readdir(folder)).sort(), ["ca.crt", "ca.key", "server.crt", "server.key", "signing.key"]);
  });
});
