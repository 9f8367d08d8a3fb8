import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  sign,
  X509Certificate,
} from "node:crypto";
import { link, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { isIP } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { claim } from "#lib/key.ts";

/** Signs clusters into URLs. */
export interface Signer {
  /** base64url, as functions have it in POSTERN_KEYS. */
  publicKey: string;
  /** `{cluster}.{key}`, the first segment of a URL. */
  segment(cluster: string, keyVersion: number): string;
}

/** The signing key in a folder, made at first use. */
export const openSigner = async (folder: string): Promise<Signer> =>
  signerOf(await keep(folder, "signing.key", async () => makeSigningKey()));

/** In PEM. */
export const makeSigningKey = (): string =>
  String(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));

/** The signer that such a key makes. */
export const signerOf = (pem: string): Signer => {
  const key = createPrivateKey(pem);
  return {
    publicKey: String(createPublicKey(pem).export({ format: "jwk" }).x),
    segment: (cluster, keyVersion) =>
      `${cluster}.${sign(null, Buffer.from(claim(cluster, keyVersion)), key).toString("base64url")}`,
  };
};

export interface ServerCertificate {
  ca: string;
  cert: string;
  key: string;
}

/** A certificate for this machine and the given host, from a CA of our own; both made at first use and kept. */
export const openCertificate = async (folder: string, host: string): Promise<ServerCertificate> => {
  const making = () => import("./certificates.ts");
  const caKey = await keep(folder, "ca.key", async () => (await making()).privateKey());
  const ca = await keep(folder, "ca.crt", async () => (await making()).authority(caKey));
  const names = serverNames(host);
  const [cert, key] = await Promise.all(
    ["server.crt", "server.key"].map((file) => readFile(join(folder, file), "utf8").catch(() => "")),
  );
  if (cert && key && serves(cert, key, ca, names)) return { ca, cert, key };

  const fresh = await (await making()).server(ca, caKey, names);
  await replace(folder, "server.crt", fresh.certificate);
  await replace(folder, "server.key", fresh.key);
  return { ca, cert: fresh.certificate, key: fresh.key };
};

/** A host that listens everywhere is reached by each of this machine's addresses. */
const serverNames = (host: string): string[] => {
  const everywhere = host === "0.0.0.0" || host === "::";
  const addresses = Object.values(networkInterfaces()).flatMap((list = []) => list.map(({ address }) => address));
  const own = everywhere ? addresses.filter((address) => !address.startsWith("fe80")) : [host];
  return [...new Set(["localhost", "127.0.0.1", "::1", ...own])];
};

const month = 30 * 24 * 3600 * 1000;

/** Of two processes that replace both at once, one may have had the last word on the certificate, the other on the key. */
const serves = (cert: string, key: string, ca: string, names: string[]): boolean => {
  try {
    const certificate = new X509Certificate(cert);
    return (
      certificate.checkIssued(new X509Certificate(ca)) &&
      certificate.checkPrivateKey(createPrivateKey(key)) &&
      Date.parse(certificate.validTo) > Date.now() + month &&
      names.every((name) => (isIP(name) ? certificate.checkIP(name) : certificate.checkHost(name)))
    );
  } catch {
    // Torn files are as good as none.
    return false;
  }
};

/** The file's content, made and kept where there is none; of two that make it at once, the first wins. */
const keep = async (folder: string, name: string, make: () => Promise<string>): Promise<string> => {
  const file = join(folder, name);
  const present = await readFile(file, "utf8").catch(() => undefined);
  if (present !== undefined) return present;
  const draft = await writeSecret(folder, name, await make());
  await link(draft, file).catch((error) => {
    if (error.code !== "EEXIST") throw error;
  });
  await rm(draft);
  return readFile(file, "utf8");
};

const replace = async (folder: string, name: string, content: string) => {
  await rename(await writeSecret(folder, name, content), join(folder, name));
};

const writeSecret = async (folder: string, name: string, content: string): Promise<string> => {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const draft = join(folder, `.${name}.${randomBytes(6).toString("hex")}`);
  await writeFile(draft, content, { mode: 0o600, flag: "wx" });
  return draft;
};
