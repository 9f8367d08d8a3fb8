import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { buildTextToSignForUrlKey } from "#lib/core/url-key.ts";

/**
 * Creates a signing key from one byte. It is the same key in each run, so that recorded URLs are valid in later runs.
 */
export const createTestSigner = (seed: number) => {
  // The beginning of an Ed25519 private key in DER (PKCS #8). The 32 bytes of the key follow.
  const header = Buffer.from("302e020100300506032b657004220420", "hex");
  const key = createPrivateKey({ key: Buffer.concat([header, Buffer.alloc(32, seed)]), format: "der", type: "pkcs8" });
  return {
    publicKey: String(createPublicKey(key).export({ format: "jwk" }).x),
    segment: (cluster: string, keyVersion = 1) =>
      `${cluster}.${sign(null, Buffer.from(buildTextToSignForUrlKey(cluster, keyVersion)), key).toString("base64url")}`,
  };
};
