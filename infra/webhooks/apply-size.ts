const lastApplied = "kubectl.kubernetes.io/last-applied-configuration";

/** The API server's limit for all annotations of an object in bytes, keys and values together. */
export const mostAnnotationBytes = 256 * 1024;

/** Returns the size of an object's annotations after `kubectl apply`, which stores all of the object in one. */
export const countAnnotationBytesAfterApply = (object: object): number => {
  const { metadata, ...rest } = object as { metadata?: { annotations?: Record<string, string> } };
  const annotations = metadata?.annotations ?? {};
  const stored = { ...rest, metadata: { ...metadata, annotations } };
  // Go's JSON encoder adds a newline, and writes these characters as escapes of six characters, such as < as \u003c.
  const json = `${JSON.stringify(stored)}\n`.replace(/[<>&\u2028\u2029]/g, "\\u0000");
  return Object.entries({ ...annotations, [lastApplied]: json }).reduce(
    (sum, [key, value]) => sum + Buffer.byteLength(key) + Buffer.byteLength(value),
    0,
  );
};
