/** In CEL: that the user may do this neither for a signer, such as `example.com/one`, nor for all of its domain. */
export const mayNot = (verb: string, signer: string): Record<string, string> => {
  const allows = (name: string) =>
    `authorizer.group("certificates.k8s.io").resource("signers").name(${name}).check("${verb}").allowed()`;
  return {
    [`may-not-${verb}-for-the-signer`]: `!${allows(signer)}`,
    [`may-not-${verb}-for-its-domain`]: `!${allows(`${signer}.split("/")[0] + "/*"`)}`,
  };
};

/** The signer that an object names, in CEL. */
export const signerOf = (object: "object" | "oldObject") => `${object}.?spec.?signerName.orValue("")`;
