import { type Decision, decide, type Mode } from "../decide.ts";
import { type Failure, toFailure } from "../failure.ts";
import { inTime, type World, worldFor } from "../needs.ts";
import { isSelected, type LabelSelector } from "../objects/selection.ts";
import { applied } from "../patch.ts";
import { askInRounds } from "../reinvocation.ts";
import { matches } from "../request-match.ts";
import type { KubernetesObject, Patch, Request } from "../review.ts";
import type { Phase } from "../rule.ts";
import { denied, failed, type Refusal } from "./answers.ts";
import type { Plan } from "./plans.ts";

export interface Told {
  rule: string;
  phase: Phase;
  mode: Mode;
  request: Request;
  /** The outcome in the rule's mode, and whether the rule refused regardless of its mode. */
  decision?: Decision;
  failure?: Failure;
}

export interface Around {
  failurePolicy: "Fail" | "Ignore";
  now(): Date;
  world(milliseconds: number): World;
  tell(told: Told): void;
}

export interface Judged {
  refusal?: Refusal;
  object: KubernetesObject;
  changed: boolean;
  warnings: string[];
}

export const concerned = (plans: readonly Plan[], phase: Phase, request: Request): Plan[] =>
  plans.filter(({ match }) => match[phase]?.some((one) => matches(one, request)));

/** Evaluates a request in the API server's order: mutating rules one after another, then validating rules in parallel. */
export const judge = async (plans: readonly Plan[], request: Request, around: Around): Promise<Judged> => {
  const mutated = await mutate(concerned(plans, "mutate", request), request, around);
  if (mutated.refusal) return mutated;
  const last = mutated.changed ? { ...request, object: mutated.object } : request;
  const said = await Promise.all(
    concerned(plans, "validate", request).map((plan) => ask(plan, "validate", last, around)),
  );
  const warnings = [...mutated.warnings, ...said.flatMap(({ warnings }) => warnings)];
  const refusal = said.find(({ refusal }) => refusal)?.refusal;
  return { ...mutated, warnings, ...(refusal && { refusal }) };
};

const mutate = async (asked: readonly Plan[], request: Request, around: Around): Promise<Judged> => {
  const warnings: string[] = [];
  let { object } = request;
  let refusal: Refusal | undefined;
  const isReinvoked = ({ mode, rule }: Plan) => mode === "enforce" && rule.reinvocationPolicy !== "Never";
  await askInRounds(asked, isReinvoked, async (plan) => {
    const said = await ask(plan, "mutate", { ...request, object }, around);
    for (const warning of said.warnings) warnings.push(warning);
    refusal = said.refusal;
    if (refusal) return undefined;
    object = applied(object, said.patch);
    return said.patch.length > 0;
  });
  const changed = refusal === undefined && object !== request.object;
  // Rules only edit a draft of the object, so the result is an object, too.
  return { object: object as KubernetesObject, changed, warnings, ...(refusal && { refusal }) };
};

interface Said {
  patch: Patch;
  warnings: string[];
  refusal?: Refusal;
}

const ask = async (plan: Plan, phase: Phase, request: Request, around: Around): Promise<Said> => {
  const { name, mode, rule, settings, variant, milliseconds, entry } = plan;
  const { decision, failure } = await attempt(async () => {
    if (Object.keys(plan.selectors).length > 0 && !(await isAbout(plan, request, around))) return undefined;
    const world = worldFor(rule, {}, { world: (_, milliseconds) => around.world(milliseconds) }, milliseconds);
    const said = decide(rule, phase, request, { ...{ name, mode, settings, variant, world }, now: around.now() });
    return said instanceof Promise ? inTime(said, milliseconds) : said;
  });
  if (decision === undefined && failure === undefined) return nothing;
  around.tell({ rule: name, phase, mode, request, ...(decision && { decision }), ...(failure && { failure }) });
  const isFatal = failure && mode === "enforce" && around.failurePolicy === "Fail";
  const { status, patch = [], warnings = [] } = decision?.outcome ?? {};
  const refusal = isFatal ? failed(entry, failure) : status && denied(entry, status);
  return { patch, warnings, ...(refusal && { refusal }) };
};

const nothing: Said = { patch: [], warnings: [] };

/** Reports whether the rule's selectors select a request, as the API server evaluates them. */
const isAbout = async (
  { selectors: { ofNamespace, ofObject }, milliseconds }: Plan,
  { object, oldObject, namespace, resource: { group, resource } }: Request,
  { world }: Around,
): Promise<boolean> => {
  const isTaken = (selector: LabelSelector, one: unknown) =>
    isSelected(selector, Object(Object(one).metadata).labels ?? {});
  if (ofObject && ![object, oldObject].some((one) => one != null && isTaken(ofObject, one))) return false;
  if (ofNamespace === undefined || namespace === undefined) return true;
  if (group === "" && resource === "namespaces") return isTaken(ofNamespace, object ?? oldObject);
  const found = await world(milliseconds).get({ group: "", resource: "namespaces" }, namespace);
  return found !== undefined && isTaken(ofNamespace, found);
};

const attempt = async (
  decide: () => Promise<Decision | undefined>,
): Promise<{ decision?: Decision | undefined; failure?: Failure }> => {
  try {
    return { decision: await decide() };
  } catch (thrown) {
    return { failure: toFailure(thrown) };
  }
};
