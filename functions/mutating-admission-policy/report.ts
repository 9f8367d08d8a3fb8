import { quoteAsGo } from "postern/objects/go/quoted";
import { forbidden } from "postern/refusals";
import type { AdmissionRequest, Status } from "postern/review";
import type { MutatingBinding, MutatingPolicy } from "./policies.ts";

/** An error of a policy that refuses the request. */
export interface PolicyDenial {
  message: string;
  reason: "Forbidden" | "Invalid";
}

/**
 * Returns a refusal such as "policy 'p' with binding 'b' denied request: no such key: team". Without a binding, the
 * error is in the policy's own configuration. Upstream's message then has the name in double quotes, with Go's escapes.
 */
export const formatDenial = (
  { metadata: { name } }: MutatingPolicy,
  binding: MutatingBinding | undefined,
  error: string,
): string => {
  const where = binding ? `policy '${name}' with binding '${binding.metadata.name}'` : `policy ${quoteAsGo(name)}`;
  return `${where} denied request: ${error}`;
};

/** Builds the refusal for all denials. As in upstream, the first gives the message and reason, and the code is 403. */
export const buildStatus = (
  request: AdmissionRequest,
  firstDenial: PolicyDenial,
  denials: readonly PolicyDenial[],
): Status => {
  const status = forbidden({ ...request, resource: request.requestResource ?? request.resource }, "");
  const causes = denials.map(({ message }) => ({ message }));
  return { ...status, ...firstDenial, details: { ...status.details, causes } };
};
