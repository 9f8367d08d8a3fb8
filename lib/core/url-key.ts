import { createPublicKey, type KeyObject, verify } from "node:crypto";

/** The caller of a function, proven by the signed first segment of the URL's path. */
export interface VerifiedUrlKeyOwner {
  cluster: string;
  /** The public key and the cluster's key version, logged so that a rotation sees when the old key is unused. */
  key: string;
}

/** Returns the text whose signature is the key in a cluster's webhook URLs. */
export const buildTextToSignForUrlKey = (cluster: string, keyVersion: number) => `postern/1 ${cluster} ${keyVersion}`;

// 86 characters hold four bits more than a signature; only the form in which they are zero is accepted.
const segmentForm = /^([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)\.([A-Za-z0-9_-]{85}[AQgw])$/;
const mostCached = 256;

/**
 * Verifies `{cluster}.{key}` against the public keys (base64url, separated by commas) and the cluster's key versions.
 * Valid segments are cached, wrong ones are not: a stranger can't fill the memory.
 */
export const createUrlKeyVerifier = (publicKeys: string, listKeyVersions: (cluster: string) => readonly number[]) => {
  const known = new Map<string, VerifiedUrlKeyOwner>();
  const keys = publicKeys.split(",").filter(Boolean).map(parsePublicKey);

  return (segment: string): VerifiedUrlKeyOwner | undefined => {
    const cached = known.get(segment);
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
        if (known.size >= mostCached) known.delete(known.keys().next().value ?? "");
        known.set(segment, caller);
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
