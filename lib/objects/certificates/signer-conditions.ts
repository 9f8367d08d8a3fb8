/** Returns CEL conditions that are true if the user may use the verb neither for a signer nor for its whole domain. */
export const buildSignerConditions = (verb: string, signerExpression: string): Record<string, string> => {
  const allows = (name: string) =>
    `authorizer.group("certificates.k8s.io").resource("signers").name(${name}).check("${verb}").allowed()`;
  return {
    [`may-not-${verb}-for-the-signer`]: `!${allows(signerExpression)}`,
    [`may-not-${verb}-for-its-domain`]: `!${allows(`${signerExpression}.split("/")[0] + "/*"`)}`,
  };
};

/** Returns a CEL expression for the signer that an object names. */
export const buildSignerExpression = (object: "object" | "oldObject") => `${object}.?spec.?signerName.orValue("")`;
