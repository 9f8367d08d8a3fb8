import { createPublicKey, webcrypto } from "node:crypto";
import { isIP } from "node:net";
import "reflect-metadata";
import * as x509 from "@peculiar/x509";

// keys.ts imports this module only when it has to make a certificate, about once a year.
x509.cryptoProvider.set(webcrypto);
const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
const dayMilliseconds = 24 * 3600 * 1000;

export const generatePrivateKey = async (): Promise<string> => exportPrivateKey((await generateKeyPair()).privateKey);

/** Makes the certificate of a certificate authority, valid for ten years. */
export const generateAuthorityCertificate = async (key: string): Promise<string> => {
  const keys = await importKeyPair(key);
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: "CN=Postern local CA",
    keys,
    signingAlgorithm: algorithm,
    notBefore: new Date(Date.now() - dayMilliseconds),
    notAfter: new Date(Date.now() + 3650 * dayMilliseconds),
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return `${certificate.toString("pem")}\n`;
};

/** Makes a certificate for a server or a client, valid for a year. The certificate authority `ca` signs it. */
export const generateCertificate = async (
  ca: string,
  caKey: string,
  names: string[],
  purpose: "serverAuth" | "clientAuth" = "serverAuth",
): Promise<{ certificate: string; key: string }> => {
  const issuer = new x509.X509Certificate(ca);
  const { privateKey: signingKey } = await importKeyPair(caKey);
  const keys = await generateKeyPair();
  const certificate = await x509.X509CertificateGenerator.create({
    subject: "CN=Postern gateway",
    issuer: issuer.subject,
    publicKey: keys.publicKey,
    signingKey,
    signingAlgorithm: algorithm,
    notBefore: new Date(Date.now() - dayMilliseconds),
    notAfter: new Date(Date.now() + 365 * dayMilliseconds),
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage[purpose]]),
      new x509.SubjectAlternativeNameExtension(names.map((value) => ({ type: isIP(value) ? "ip" : "dns", value }))),
      await x509.AuthorityKeyIdentifierExtension.create(issuer),
    ],
  });
  return { certificate: `${certificate.toString("pem")}\n`, key: await exportPrivateKey(keys.privateKey) };
};

const generateKeyPair = () => webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);

/** Returns the private key in a PEM text, and its public key, as Web Crypto needs them. */
const importKeyPair = async (pem: string) => {
  const publicDer = createPublicKey(pem).export({ type: "spki", format: "der" });
  return {
    privateKey: await webcrypto.subtle.importKey("pkcs8", x509.PemConverter.decodeFirst(pem), algorithm, false, [
      "sign",
    ]),
    publicKey: await webcrypto.subtle.importKey("spki", publicDer, algorithm, true, ["verify"]),
  };
};

const exportPrivateKey = async (key: webcrypto.CryptoKey) =>
  `${x509.PemConverter.encode(await webcrypto.subtle.exportKey("pkcs8", key), "PRIVATE KEY")}\n`;
