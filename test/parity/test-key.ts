import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { buildTextToSignForUrlKey } from "#lib/core/url-key.ts";

/** Creates a signing key from one byte. The key is the same in every run, so that recorded URLs stay valid. */
export const createTestSigner = (seed: number) => {
  const header = Buffer.from("302e020100300506032b657004220420", "hex");
  const key = createPrivateKey({ key: Buffer.concat([header, Buffer.alloc(32, seed)]), format: "der", type: "pkcs8" });
  return {
    publicKey: String(createPublicKey(key).export({ format: "jwk" }).x),
    segment: (cluster: string, keyVersion = 1) =>
      `${cluster}.${sign(null, Buffer.from(buildTextToSignForUrlKey(cluster, keyVersion)), key).toString("base64url")}`,
  };
};
