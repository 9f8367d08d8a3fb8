/** Returns CEL conditions: the user has the verb neither for a signer nor for all signers of its domain. */
export const buildSignerConditions = (verb: string, signer: string): Record<string, string> => {
  const allows = (name: string) =>
    `authorizer.group("certificates.k8s.io").resource("signers").name(${name}).check("${verb}").allowed()`;
  return {
    [`may-not-${verb}-for-the-signer`]: `!${allows(signer)}`,
    [`may-not-${verb}-for-its-domain`]: `!${allows(`${signer}.split("/")[0] + "/*"`)}`,
  };
};

/** Returns a CEL expression for the signer that an object names. */
export const buildSignerExpression = (object: "object" | "oldObject") => `${object}.?spec.?signerName.orValue("")`;
