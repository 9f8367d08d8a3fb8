import { createPublicKey, type KeyObject, verify } from "node:crypto";

/** The caller of a function. The first segment of the URL's path, which contains a signature, proves who it is. */
export interface VerifiedUrlKeyOwner {
  cluster: string;
  /** The public key and the cluster's key version. They are logged, to find out when an old key is no longer used. */
  key: string;
}

/** Returns the text whose signature is the key in a cluster's webhook URLs. */
export const buildTextToSignForUrlKey = (cluster: string, keyVersion: number) => `postern/1 ${cluster} ${keyVersion}`;

// A cluster's name, a dot, and a signature of 64 bytes in base64url. 86 characters have 516 bits, four more than the
// signature. These four bits must be zero, so the last character is A, Q, g or w.
const segmentForm = /^([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)\.([A-Za-z0-9_-]{85}[AQgw])$/;
const maxCachedSegments = 256;

/**
 * Returns a function that verifies a segment `{cluster}.{key}` with the public keys (base64url, separated by commas)
 * and the cluster's key versions. Only valid segments are cached, so that requests without a key can't fill the memory.
 */
export const createUrlKeyVerifier = (publicKeys: string, listKeyVersions: (cluster: string) => readonly number[]) => {
  const cache = new Map<string, VerifiedUrlKeyOwner>();
  const keys = publicKeys.split(",").filter(Boolean).map(parsePublicKey);
  return (segment: string): VerifiedUrlKeyOwner | undefined => {
    const cached = cache.get(segment);
    if (cached) return cached;
    const [, cluster, signature] = segmentForm.exec(segment) ?? [];
    if (!cluster || !signature) return undefined;

    for (const { id, key } of keys)
      for (const version of listKeyVersions(cluster)) {
        if (
          !verify(
            null,
            Buffer.from(buildTextToSignForUrlKey(cluster, version)),
            key,
            Buffer.from(signature, "base64url"),
          )
        )
          continue;
        const caller = { cluster, key: `${id}.${version}` };
        if (cache.size >= maxCachedSegments) cache.delete(cache.keys().next().value ?? "");
        cache.set(segment, caller);
        return caller;
      }
    return undefined;
  };
};

const parsePublicKey = (x: string): { id: string; key: KeyObject } => {
  try {
    return { id: x.slice(0, 8), key: createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" }) };
  } catch (cause) {
    throw new Error(`"${x}" is no Ed25519 public key in base64url, as POSTERN_KEYS must list them`, { cause });
  }
};
