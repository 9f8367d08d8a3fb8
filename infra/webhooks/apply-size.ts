const lastApplied = "kubectl.kubernetes.io/last-applied-configuration";

/** The API server's limit for all annotations of an object in bytes, keys and values together. */
export const mostAnnotationBytes = 256 * 1024;

/** Returns the bytes of an object's annotations after `kubectl apply`, which stores the object in an annotation. */
export const countAnnotationBytesAfterApply = (object: object): number => {
  const { metadata, ...rest } = object as { metadata?: { annotations?: Record<string, string> } };
  const annotations = metadata?.annotations ?? {};
  const kept = { ...rest, metadata: { ...metadata, annotations } };
  // Go's JSON encoder ends with a newline, and escapes these characters: \u003c is as long as any other escape.
  const json = `${JSON.stringify(kept)}\n`.replace(/[<>&\u2028\u2029]/g, "\\u0000");
  return Object.entries({ ...annotations, [lastApplied]: json }).reduce(
    (sum, [key, value]) => sum + Buffer.byteLength(key) + Buffer.byteLength(value),
    0,
  );
};
