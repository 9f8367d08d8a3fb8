import { forbidden } from "postern/refusals";
import type { AdmissionRequest, Status } from "postern/review";
import type { Verdict } from "postern/rule";
import type { PolicyResult } from "./evaluation.ts";
import type { ValidatingBinding, ValidatingPolicy } from "./policies.ts";

/** Collects the results of policies for a request, and makes the verdict of them. */
export class PolicyReport {
  readonly #denials: { message: string; reason?: string | undefined }[] = [];
  readonly #warnings: string[] = [];
  readonly #audit = new Map<string, string[]>();
  readonly #failures: object[] = [];
  readonly #mostFailures: number;

  /** `mostFailures` is the largest number of failures in the audit annotation. */
  constructor(mostFailures: number) {
    this.#mostFailures = mostFailures;
  }

  /** Adds the result of a policy under a binding. */
  add({ metadata: { name: policy } }: ValidatingPolicy, binding: ValidatingBinding, result: PolicyResult): void {
    const { validationActions } = binding.spec;
    const where = `ValidatingAdmissionPolicy '${policy}' with binding '${binding.metadata.name}'`;
    const deny = (message: string, reason?: string) =>
      this.#denials.push({ message: `${where} denied request: ${message}`, reason });
    for (const { index, message, reason } of result.violations)
      for (const action of validationActions)
        if (action === "Deny") deny(message, reason);
        else if (action === "Warn") this.#warnings.push(`Validation failed for ${where}: ${message}`);
        else
          this.#failures.push({
            message,
            policy,
            binding: binding.metadata.name,
            expressionIndex: index,
            validationActions,
          });
    for (const message of result.refusals) deny(message);
    for (const [key, value] of result.annotations)
      this.#audit.set(key, [...new Set([...(this.#audit.get(key) ?? []), value])]);
  }

  /** Adds an error in the configuration of a policy or of a binding. */
  addConfigurationError(policy: ValidatingPolicy, error: string, binding: ValidatingBinding | undefined): void {
    const where = binding ? ` with binding '${binding.metadata.name}'` : "";
    this.#denials.push({
      message: `ValidatingAdmissionPolicy '${policy.metadata.name}'${where} denied request: ${error}`,
    });
  }

  /** Returns the verdict: a refusal by the first denial. */
  toVerdict(request: AdmissionRequest): Verdict {
    const [first] = this.#denials;
    const failures = this.#failures.slice(0, this.#mostFailures);
    const audit = {
      ...Object.fromEntries([...this.#audit].map(([key, values]) => [key, values.join(", ")])),
      // The key is upstream's key without its prefix: the API server writes the name of the entry in front.
      ...(failures.length > 0 && { validation_failure: printFailures(failures) }),
    };
    return { ...(first && { refuse: buildStatus(request, first) }), warnings: this.#warnings, audit };
  }
}

const printFailures = (failures: readonly object[]): string =>
  JSON.stringify(failures).replace(
    // Go's JSON encoder escapes these characters.
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

const codes: Readonly<Record<string, number>> = {
  Invalid: 422,
  Forbidden: 403,
  Unauthorized: 401,
  RequestEntityTooLarge: 413,
};

const buildStatus = (
  request: AdmissionRequest,
  { message, reason = "Invalid" }: { message: string; reason?: string | undefined },
): Status => {
  const status = forbidden({ ...request, resource: request.requestResource ?? request.resource }, message);
  return { ...status, code: codes[reason] ?? 422, reason, details: { ...status.details, causes: [{ message }] } };
};
