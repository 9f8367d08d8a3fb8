const lastApplied = "kubectl.kubernetes.io/last-applied-configuration";

/** The bytes that an API server takes in all annotations of an object, keys and values together. */
export const mostAnnotations = 256 * 1024;

/** Returns the bytes of an object's annotations after plain `kubectl apply`, which keeps the whole object in one of them. */
export const countAnnotations = (object: object): number => {
  const { metadata, ...rest } = object as { metadata?: { annotations?: Record<string, string> } };
  const annotations = metadata?.annotations ?? {};
  const kept = { ...rest, metadata: { ...metadata, annotations } };
  // As Go writes JSON: with a line's end, and with what HTML may take for markup as \u003c.
  const json = `${JSON.stringify(kept)}\n`.replace(/[<>&\u2028\u2029]/g, "\\u0000");
  return Object.entries({ ...annotations, [lastApplied]: json }).reduce(
    (sum, [key, value]) => sum + Buffer.byteLength(key) + Buffer.byteLength(value),
    0,
  );
};
