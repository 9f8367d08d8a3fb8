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
import { type NetworkInterfaceInfo, networkInterfaces } from "node:os";
import { join } from "node:path";
import { buildTextToSignForUrlKey } from "#lib/core/url-key.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";

/** Signs the first segment of a cluster's URLs. The signature proves to functions that the cluster sent a request. */
export interface WebhookUrlSigner {
  /** The public key in base64url, as in the environment variable POSTERN_KEYS of functions. */
  publicKey: string;
  /** Returns `{cluster}.{key}`, the first segment of a URL's path. */
  signSegment(cluster: string, keyVersion: number): string;
}

/** Returns a signer with the private key in a folder. Creates the key if it is missing. */
export const readOrCreateUrlSigner = async (folder: string): Promise<WebhookUrlSigner> => {
  const pem = await readOrCreate(folder, "signing.key", async () => makeSigningKey());
  if (getKeyType(pem) === "ed25519") return createSigner(pem);
  throw new Complaint(
    `${join(folder, "signing.key")} holds no Ed25519 private key in PEM; restore it, or delete it to have a new key made, and register the webhooks of every cluster again`,
  );
};

/** Returns the token in the addresses of the local console. Creates the token if it is missing. */
export const readOrCreateConsoleToken = async (folder: string): Promise<string> => {
  const token = await readOrCreate(folder, "console.token", async () => randomBytes(32).toString("base64url"));
  // 43 characters: 32 bytes in base64url.
  if (/^[\w-]{43}$/.test(token)) return token;
  throw new Complaint(`${join(folder, "console.token")} holds no token; delete it to have a new one made`);
};

/** Returns a new Ed25519 private key in PEM for signing URLs. */
export const makeSigningKey = (): string =>
  String(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }));

/** Returns a signer of webhook URLs. The signed segment is for instance "prod.mFz3…". */
export const createSigner = (pem: string): WebhookUrlSigner => {
  const key = createPrivateKey(pem);
  return {
    publicKey: String(createPublicKey(pem).export({ format: "jwk" }).x),
    signSegment: (cluster, keyVersion) =>
      `${cluster}.${sign(null, Buffer.from(buildTextToSignForUrlKey(cluster, keyVersion)), key).toString("base64url")}`,
  };
};

export interface ServerCertificate {
  ca: string;
  cert: string;
  key: string;
}

const loadGenerator = () => import("./certificates.ts");

/** Returns a certificate for this machine and the host. A local CA signs it. Creates both if missing. */
export const readOrCreateServerCertificate = async (folder: string, host: string): Promise<ServerCertificate> => {
  const { ca, caKey } = await openAuthority(folder);
  const names = listServerNames(host);
  const [cert, key] = await Promise.all(
    ["server.crt", "server.key"].map((file) => readFile(join(folder, file), "utf8").catch(() => "")),
  );
  if (cert && key && isUsable(cert, key, ca, names)) return { ca, cert, key };
  const created = await (await loadGenerator()).generateCertificate(ca, caKey, names);
  await replaceFile(folder, "server.crt", created.certificate);
  await replaceFile(folder, "server.key", created.key);
  return { ca, cert: created.certificate, key: created.key };
};

/**
 * Returns the local CA and its key; creates them if missing. Never replaces a CA, even a damaged or expired one,
 * because clusters have registered it.
 */
const openAuthority = async (folder: string): Promise<{ ca: string; caKey: string }> => {
  const [keyFile, file] = [join(folder, "ca.key"), join(folder, "ca.crt")];
  const remedy = "delete ca.key and ca.crt to have a new CA made, and register the webhooks of every cluster again";
  const createComplaint = (sentence: string) => new Complaint(`${sentence}; restore it, or ${remedy}`);
  if ((await readIfPresent(file)) !== undefined && (await readIfPresent(keyFile)) === undefined)
    throw createComplaint(`${keyFile} is missing, the key of ca.crt`);
  const caKey = await readOrCreate(folder, "ca.key", async () => (await loadGenerator()).generatePrivateKey());
  if (getKeyType(caKey) !== "prime256v1") throw createComplaint(`${keyFile} holds no P-256 private key in PEM`);
  const ca = await readOrCreate(folder, "ca.crt", async () =>
    (await loadGenerator()).generateAuthorityCertificate(caKey),
  );
  const [certificate] = parseCertificates(ca) ?? [];
  if (certificate === undefined) throw createComplaint(`${file} holds no certificate in PEM`);
  if (!certificate.checkPrivateKey(createPrivateKey(caKey)))
    throw createComplaint(`${file} is not the certificate of ca.key`);
  if (isExpired(certificate)) throw new Complaint(`${file} expired on ${certificate.validTo}; ${remedy}`);
  return { ca, caKey };
};

/** Returns the certificates in a PEM text; undefined if there is none, or an invalid one. */
export const parseCertificates = (pem: string): X509Certificate[] | undefined => {
  const found = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g);
  try {
    return found?.map((certificate) => new X509Certificate(certificate));
  } catch {
    return undefined;
  }
};

export const isExpired = ({ validTo }: X509Certificate): boolean => Date.parse(validTo) <= Date.now();

/** Returns the type of a private key, such as "prime256v1" or "rsa"; undefined if the text is no key. */
const getKeyType = (pem: string): string | undefined => {
  try {
    const { asymmetricKeyDetails, asymmetricKeyType } = createPrivateKey(pem);
    return asymmetricKeyDetails?.namedCurve ?? asymmetricKeyType;
  } catch {
    return undefined;
  }
};

/** Returns this machine's addresses if the host is `0.0.0.0` or `::`, which mean all addresses; otherwise undefined. */
export const listAddressesOfWildcardHost = (host: string): NetworkInterfaceInfo[] | undefined =>
  host === "0.0.0.0" || host === "::" ? Object.values(networkInterfaces()).flatMap((list = []) => list) : undefined;

/** Returns the names and addresses for a certificate. Link-local IPv6 addresses (fe80…) are left out. */
const listServerNames = (host: string): string[] => {
  const addresses = listAddressesOfWildcardHost(host)?.map(({ address }) => address);
  const addressesToName = addresses?.filter((address) => !address.startsWith("fe80")) ?? [host];
  return [...new Set(["localhost", "127.0.0.1", "::1", ...addressesToName])];
};

const monthMilliseconds = 30 * 24 * 3600 * 1000;

/**
 * Reports whether a server certificate is from this CA, is valid for all names, and doesn't expire within a month. The
 * private key must belong to the certificate: if two processes write both files at the same time, it may not.
 */
const isUsable = (cert: string, key: string, ca: string, names: string[]): boolean => {
  try {
    const certificate = new X509Certificate(cert);
    return (
      certificate.checkIssued(new X509Certificate(ca)) &&
      certificate.checkPrivateKey(createPrivateKey(key)) &&
      Date.parse(certificate.validTo) > Date.now() + monthMilliseconds &&
      names.every((name) => (isIP(name) ? certificate.checkIP(name) : certificate.checkHost(name)))
    );
  } catch {
    // A missing or incomplete certificate or key can't be parsed. The caller makes new files.
    return false;
  }
};

/**
 * Returns the text of a secret file. Creates the file if it is missing. If two processes create it at the same time,
 * both return the text of the process that was first.
 */
const readOrCreate = async (folder: string, name: string, make: () => Promise<string>): Promise<string> => {
  const file = join(folder, name);
  const present = await readIfPresent(file);
  if (present !== undefined) return present;
  const draft = await writeSecret(folder, name, await make());
  await link(draft, file).catch((error) => {
    if (error.code !== "EEXIST") throw error;
  });
  await rm(draft);
  return readFile(file, "utf8");
};

const readIfPresent = (file: string): Promise<string | undefined> =>
  readFile(file, "utf8").catch((error) => {
    if (error.code === "ENOENT") return undefined;
    throw new Complaint(`${file} can't be read: ${toSentence(error)}`);
  });

/** Replaces a secret file in one step, so that no process reads an incomplete file. */
const replaceFile = async (folder: string, name: string, content: string) => {
  await rename(await writeSecret(folder, name, content), join(folder, name));
};

/** Writes a draft of a secret file that only its owner can read. Returns the path of the draft. */
const writeSecret = async (folder: string, name: string, content: string): Promise<string> => {
  const draft = join(folder, `.${name}.${randomBytes(6).toString("hex")}`);
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await writeFile(draft, content, { mode: 0o600, flag: "wx" });
  } catch (error) {
    throw new Complaint(`${join(folder, name)} can't be written: ${toSentence(error)}`);
  }
  return draft;
};
