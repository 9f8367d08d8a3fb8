import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { generateKeyPairSync, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, it } from "node:test";
import { connect, createServer } from "node:tls";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createUrlKeyVerifier } from "#lib/core/url-key.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { readCaOption } from "../../infra/commands/shared/options.ts";
import { readOrCreateServerCertificate, readOrCreateUrlSigner, type ServerCertificate } from "../../infra/keys/keys.ts";
import { createTestFolder } from "../folders.ts";
import { listen } from "../listen.ts";

const day = 86_400_000;

const root = await createTestFolder();
let parent: string;
let folder: string;
beforeEach(async () => {
  parent = await mkdtemp(join(root, "keys-"));
  folder = join(parent, ".postern");
});

const readContents = async () => {
  const files = (await readdir(folder)).sort();
  return Object.fromEntries(
    await Promise.all(files.map(async (file) => [file, await readFile(join(folder, file), "utf8")])),
  );
};

/** Makes a TLS handshake as the API server does, trusting only this CA. Returns "verified", or the error's code. */
const tryHandshake = async ({ ca, cert, key }: ServerCertificate, name: string): Promise<string> => {
  const server = createServer({ cert, key }, (socket) => socket.end());
  server.on("tlsClientError", () => {});
  const port = await listen(server);
  // `name` may be an IP address, which a client can't send as the `servername` of TLS. So the client sends no name, and
  // the certificate is checked for `name` here, where Node would check it for `host`, the address of the connection.
  const { checkServerIdentity: checkName } = await import("node:tls");
  const checkServerIdentity: typeof checkName = (_, certificate) => checkName(name, certificate);
  const client = connect({ port, host: "127.0.0.1", ca, checkServerIdentity });
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

const expectComplaint = (sentence: string | RegExp) => (error: unknown) => {
  assert.ok(error instanceof Complaint, String(error));
  assert.match(error.message, typeof sentence === "string" ? new RegExp(`^${RegExp.escape(sentence)}$`) : sentence);
  return true;
};

/** Damaged contents of a key's file. The last one is a key on another curve. */
const damaged: [name: string, text: string][] = [
  ["is empty", ""],
  ["is cut off", "-----BEGIN PRIVATE KEY-----\nMC4CAQAw"],
  [
    "contains another kind of key",
    String(generateKeyPairSync("ec", { namedCurve: "P-384" }).privateKey.export({ type: "pkcs8", format: "pem" })),
  ],
];

describe("the signing key", () => {
  it("the signing key is created once, and only its owner can read it", async () => {
    const first = await readOrCreateUrlSigner(folder);
    const firstContents = await readContents();
    const second = await readOrCreateUrlSigner(folder);
    assert.deepEqual([second.publicKey, second.signSegment("a", 1)], [first.publicKey, first.signSegment("a", 1)]);
    assert.deepEqual(await readContents(), firstContents);
    assert.deepEqual(Object.keys(firstContents), ["signing.key"]);
    assert.equal((await stat(folder)).mode & 0o777, 0o700);
    assert.equal((await stat(join(folder, "signing.key"))).mode & 0o777, 0o600);
  });

  it("the signing key signs URLs that functions accept", async () => {
    const { publicKey, signSegment } = await readOrCreateUrlSigner(folder);
    const acceptedVersions = [1, 2];
    const verify = createUrlKeyVerifier(publicKey, () => acceptedVersions);
    assert.match(signSegment("prod-eu", 1), /^prod-eu\.[A-Za-z0-9_-]{86}$/);
    assert.deepEqual(verify(signSegment("prod-eu", 2)), { cluster: "prod-eu", key: `${publicKey.slice(0, 8)}.2` });
    assert.equal(verify(signSegment("prod-eu", 3)), undefined);
  });

  for (const [name, text] of damaged)
    it(`the signing key is not replaced if its file ${name}`, async () => {
      await readOrCreateUrlSigner(folder);
      await writeFile(join(folder, "signing.key"), text);
      const remedy = "delete it to have a new key made, and register the webhooks of every cluster again";
      const fault = `${join(folder, "signing.key")} holds no Ed25519 private key in PEM`;
      await assert.rejects(readOrCreateUrlSigner(folder), expectComplaint(`${fault}; restore it, or ${remedy}`));
      assert.deepEqual(await readContents(), { "signing.key": text });
    });

  it("the signing key can't be created if there is a file with the name of its folder", async () => {
    await writeFile(folder, "");
    await assert.rejects(readOrCreateUrlSigner(folder), expectComplaint(/signing\.key can't be read: ENOTDIR/));
  });
});

describe("the certificate", () => {
  it("the certificate is created once, and only its owner can read it", async () => {
    const { ca, cert, key } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const contents = await readContents();
    assert.deepEqual(await readOrCreateServerCertificate(folder, "127.0.0.1"), { ca, cert, key });
    assert.deepEqual(await readContents(), contents);
    const caKey = contents["ca.key"];
    assert.deepEqual(contents, { "ca.crt": ca, "ca.key": caKey, "server.crt": cert, "server.key": key });
    for (const file of Object.keys(contents)) assert.equal((await stat(join(folder, file))).mode & 0o777, 0o600, file);
    assert.equal((await stat(folder)).mode & 0o777, 0o700);
  });

  const hosts: [host: string, names: string[], others: string[]][] = [
    ["127.0.0.1", ["127.0.0.1", "::1", "localhost"], ["10.1.2.3", "postern.example"]],
    ["10.1.2.3", ["10.1.2.3", "127.0.0.1", "localhost"], ["10.1.2.4"]],
    ["postern.example", ["postern.example", "localhost"], ["other.example", "a.postern.example"]],
  ];
  for (const [host, names, others] of hosts)
    it(`the certificate for ${host} passes a real handshake`, async () => {
      const certificate = await readOrCreateServerCertificate(folder, host);
      for (const name of names) assert.equal(await tryHandshake(certificate, name), "verified", name);
      for (const name of others)
        assert.equal(await tryHandshake(certificate, name), "ERR_TLS_CERT_ALTNAME_INVALID", name);
    });

  it("the certificate is verified only by its own CA", async () => {
    const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const { ca } = await readOrCreateServerCertificate(join(parent, "other"), "127.0.0.1");
    assert.notEqual(await tryHandshake({ ...certificate, ca }, "127.0.0.1"), "verified");
  });

  it("the certificate is renewed by the same CA when the host changes", async () => {
    const first = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const second = await readOrCreateServerCertificate(folder, "10.1.2.3");
    assert.equal(second.ca, first.ca);
    assert.notEqual(second.cert, first.cert);
    assert.equal(await tryHandshake(second, "10.1.2.3"), "verified");
    assert.deepEqual(await readOrCreateServerCertificate(folder, "10.1.2.3"), second);
  });

  it("the certificate is valid for at most 825 days, as some clients require, and its CA for longer", async () => {
    const { ca, cert } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const countDays = (pem: string) => (Date.parse(new X509Certificate(pem).validTo) - Date.now()) / 86_400_000;
    assert.ok(countDays(cert) > 300 && countDays(cert) < 825 && countDays(ca) > 3000);
    assert.ok(new X509Certificate(ca).ca && !new X509Certificate(cert).ca);
  });

  it("the certificate is renewed if the key belongs to another certificate", async () => {
    const first = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const otherCertificate = await readOrCreateServerCertificate(join(parent, "other"), "127.0.0.1");
    await writeFile(join(folder, "server.key"), otherCertificate.key);
    const second = await readOrCreateServerCertificate(folder, "127.0.0.1");
    assert.equal(second.ca, first.ca);
    assert.equal(await tryHandshake(second, "127.0.0.1"), "verified");
  });

  it("the certificate is renewed if its file is cut off", async () => {
    await readOrCreateServerCertificate(folder, "127.0.0.1");
    await writeFile(join(folder, "server.crt"), "-----BEGIN CERTIFICATE-----\nMIIB");
    assert.equal(await tryHandshake(await readOrCreateServerCertificate(folder, "127.0.0.1"), "127.0.0.1"), "verified");
  });

  it("the certificate is renewed by the same CA before it expires", async ({ mock }) => {
    const first = await readOrCreateServerCertificate(folder, "127.0.0.1");
    mock.timers.enable({ apis: ["Date"], now: Date.now() + 340 * day });
    const second = await readOrCreateServerCertificate(folder, "127.0.0.1");
    assert.equal(second.ca, first.ca);
    assert.ok(Date.parse(new X509Certificate(second.cert).validTo) > Date.now() + 300 * day);
  });

  it("the certificate is renewed if its key is missing", async () => {
    await readOrCreateServerCertificate(folder, "127.0.0.1");
    await rm(join(folder, "server.key"));
    assert.equal(await tryHandshake(await readOrCreateServerCertificate(folder, "127.0.0.1"), "127.0.0.1"), "verified");
  });
});

describe("the CA", () => {
  const remedy = "delete ca.key and ca.crt to have a new CA made, and register the webhooks of every cluster again";
  const toPath = (file: string) => join(folder, file);
  const expectRefusal = async (sentence: () => string) => {
    const before = await readContents();
    await assert.rejects(readOrCreateServerCertificate(folder, "127.0.0.1"), expectComplaint(`${sentence()}${remedy}`));
    assert.deepEqual(await readContents(), before);
  };
  beforeEach(() => readOrCreateServerCertificate(folder, "127.0.0.1"));

  for (const [name, text] of damaged) {
    it(`the CA is not replaced if the file of its key ${name}`, async () => {
      await writeFile(toPath("ca.key"), text);
      await expectRefusal(() => `${toPath("ca.key")} holds no P-256 private key in PEM; restore it, or `);
    });
    it(`the CA is not replaced if its file ${name}`, async () => {
      await writeFile(toPath("ca.crt"), text);
      await expectRefusal(() => `${toPath("ca.crt")} holds no certificate in PEM; restore it, or `);
    });
  }
  it("the CA is not replaced if its file contains an invalid certificate", async () => {
    await writeFile(toPath("ca.crt"), "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    await expectRefusal(() => `${toPath("ca.crt")} holds no certificate in PEM; restore it, or `);
  });
  it("the CA gets no new key if its key is missing", async () => {
    await rm(toPath("ca.key"));
    await expectRefusal(() => `${toPath("ca.key")} is missing, the key of ca.crt; restore it, or `);
  });
  it("the CA is refused if its key belongs to another CA", async () => {
    await readOrCreateServerCertificate(join(parent, "other"), "127.0.0.1");
    await rename(join(parent, "other/ca.key"), toPath("ca.key"));
    await expectRefusal(() => `${toPath("ca.crt")} is not the certificate of ca.key; restore it, or `);
  });
  it("the CA is not replaced if it has expired", async ({ mock }) => {
    const { validTo } = new X509Certificate(await readFile(toPath("ca.crt"), "utf8"));
    mock.timers.enable({ apis: ["Date"], now: Date.parse(validTo) });
    await expectRefusal(() => `${toPath("ca.crt")} expired on ${validTo}; `);
  });
});

describe("a CA that --ca names", () => {
  it("a CA that --ca names is read", async () => {
    const { ca } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    assert.equal(await readCaOption(join(folder, "ca.crt")), ca);
  });
  for (const [name, text] of damaged)
    it(`a CA that --ca names is refused if its file ${name}`, async () => {
      const file = join(parent, "ca.crt");
      await writeFile(file, text);
      await assert.rejects(readCaOption(file), expectComplaint(`--ca ${file} contains no valid certificate in PEM`));
    });
  it("a CA that --ca names is refused if it has expired", async ({ mock }) => {
    const { ca } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    const { validTo } = new X509Certificate(ca);
    mock.timers.enable({ apis: ["Date"], now: Date.parse(validTo) });
    const file = join(folder, "ca.crt");
    await assert.rejects(readCaOption(file), expectComplaint(`--ca ${file} expired on ${validTo}`));
  });
});

it("several processes at once create the same signing key and CA, and a valid certificate", async () => {
  const keys = JSON.stringify(new URL("../../infra/keys/keys.ts", import.meta.url).href);
  const script = `
    const { readOrCreateUrlSigner, readOrCreateServerCertificate } = await import(${keys});
    const folder = ${JSON.stringify(folder)};
    const [signer, { ca }] = await Promise.all([
      readOrCreateUrlSigner(folder),
      readOrCreateServerCertificate(folder, "127.0.0.1"),
    ]);
    process.stdout.write(JSON.stringify([signer.publicKey, ca]));`;
  const cwd = fileURLToPath(new URL("../..", import.meta.url));
  const run = () => promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { cwd });
  const outputs = (await Promise.all(Array.from({ length: 4 }, run))).map(({ stdout }) => stdout);
  const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
  const { publicKey } = await readOrCreateUrlSigner(folder);
  for (const output of outputs) assert.deepEqual(JSON.parse(output), [publicKey, certificate.ca]);
  assert.equal(await tryHandshake(certificate, "127.0.0.1"), "verified");
  assert.deepEqual((await readdir(folder)).sort(), ["ca.crt", "ca.key", "server.crt", "server.key", "signing.key"]);
});
