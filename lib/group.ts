import type { Context } from "aws-lambda";
import type { Decision, Evaluate, EvaluationContext, MemberResult, Mode } from "./decide.ts";
import {
  createEndpoint,
  createLambdaHost,
  type EndpointConfig,
  type EndpointHost,
  type EndpointParts,
} from "./endpoint.ts";
import { Failure, toFailure } from "./failure.ts";
import { isDirectInvocation } from "./lambda-event.ts";
import { applyPatch } from "./patch.ts";
import { askInRounds } from "./reinvocation.ts";
import { matchesRequest } from "./request-match.ts";
import type { AdmissionRequest, Patch, ReviewOutcome, Status } from "./review.ts";
import { type Phase, type RequestMatch, type Rule, rule } from "./rule.ts";

/** What a member's own webhook entry would hold and the API server would check. */
export interface Membership {
  mode: Mode;
  settings: object;
  match: readonly RequestMatch[];
  /** Whether a request is admitted if this member fails. */
  failsOpen: boolean;
  /** One match is enough. The group's entry selects namespaces by labels, which aren't known here. */
  exempt: { namespaces?: readonly string[]; users?: readonly string[]; groups?: readonly string[] };
}

type Memberships = Record<string, Membership>;

/** The config of a group; `alone` holds its members' config for invocations without a cluster. */
export interface GroupConfig extends EndpointConfig {
  clusters: Record<string, { keyVersions: readonly number[]; mode: Mode; settings: Memberships }>;
  alone: Memberships;
}

/**
 * Makes one Lambda handler of several mutators, asked in the given order: one call, one patch, one answer. A direct
 * invocation that names a member is answered by that member alone.
 */
export const createGroupEndpoint = (
  members: Record<string, Rule>,
  share: GroupConfig,
  evaluate: Evaluate,
  host: EndpointHost = createLambdaHost(),
  parts: EndpointParts = {},
) => {
  const face = buildFacade(members, share.alone);
  const together = createEndpoint(face, share, evaluateMembers(members, evaluate), logByMember(host), parts);
  return (event: unknown, context: Context): Promise<unknown> => {
    const { member } = isDirectInvocation(event) ? event : {};
    if (member === undefined) return together(event, context);
    return createEndpoint(...selectMember(String(member), members, share), evaluate, host, parts)(event, context);
  };
};

const buildFacade = (members: Record<string, Rule>, alone: Memberships): Rule => {
  const needs = Object.assign({}, ...Object.values(members).map(({ needs }) => needs));
  const declared = Object.keys(needs).length > 0 && { needs };
  return rule({ summary: "Several rules.", match: [], settings: alone, ...declared, mutate() {} });
};

const selectMember = (name: string, members: Record<string, Rule>, share: GroupConfig): [Rule, EndpointConfig] => {
  const rejectUnknownMember = () => {
    throw new Failure(400, `${share.rule} has no member "${name}"; it has ${Object.keys(members).join(", ")}`);
  };
  const member = Object.hasOwn(members, name) ? members[name] : undefined;
  const clusters = Object.entries(share.clusters).flatMap(
    ([
      cluster,
      {
        keyVersions,
        settings: { [name]: own },
      },
    ]) => (own ? [[cluster, { keyVersions, mode: own.mode, settings: own.settings }]] : []),
  );
  return [
    member ?? rule({ summary: "Nobody.", match: [], mutate: rejectUnknownMember, validate: rejectUnknownMember }),
    { rule: name, clusters: Object.fromEntries(clusters) },
  ];
};

/** Asks every member that the request concerns; each sees the object as the members before it changed it. */
const evaluateMembers =
  (members: Record<string, Rule>, evaluate: Evaluate): Evaluate =>
  async (_, phase, request, { settings, ...around }): Promise<Decision> => {
    const outcome = {
      allowed: true,
      warnings: [] as string[],
      audit: {} as Record<string, string>,
      patch: [] as Patch,
    };
    const findings = new Map<string, MemberResult>();
    const asked = Object.entries(settings as Memberships).filter(([, membership]) =>
      concernsMember(membership, request),
    );
    let { object } = request;

    let refusal: Status | undefined;
    // In modes warn and audit, a member has reported everything in the first round.
    const isReinvoked = ([, { mode }]: (typeof asked)[number]) => mode === "enforce";
    await askInRounds(asked, isReinvoked, async ([name, { mode, settings, failsOpen }]) => {
      const rule = members[name];
      if (!rule) return false;
      const circumstances = { ...around, name, mode, settings };
      const said = await evaluateMember(evaluate, rule, phase, { ...request, object }, circumstances, failsOpen);
      noteResult(findings, name, mode, said);
      const { status, warnings = [], audit = {}, patch = [] } = said.outcome;
      for (const warning of warnings) outcome.warnings.push(warning);
      for (const [key, value] of Object.entries(audit)) outcome.audit[`${name}.${key}`] = value;
      refusal = status && { ...status, message: `${name}: ${status.message}` };
      if (refusal) return undefined;
      for (const change of patch) outcome.patch.push(change);
      object = applyPatch(object, patch);
      return patch.length > 0;
    });
    return toDecision(refusal ? { ...outcome, allowed: false, status: refusal } : outcome, findings);
  };

const toDecision = (outcome: ReviewOutcome, findings: Map<string, MemberResult>): Decision => {
  const members = [...findings].map(([, finding]) => finding);
  return { outcome, refused: !outcome.allowed, operations: outcome.patch?.length ?? 0, members };
};

/** The failure of a member that fails open doesn't fail the others; the API server would go on, too. */
const evaluateMember = async (
  evaluate: Evaluate,
  rule: Rule,
  phase: Phase,
  request: AdmissionRequest,
  circumstances: EvaluationContext,
  failsOpen: boolean,
): Promise<MemberDecision> => {
  try {
    return await evaluate(rule, phase, request, circumstances);
  } catch (thrown) {
    const { code, message } = toFailure(thrown);
    const error = new Failure(code, `${circumstances.name}: ${message}`, { cause: thrown });
    if (!failsOpen) throw error;
    return { outcome: { allowed: true }, refused: false, operations: 0, error };
  }
};

type MemberDecision = Decision & { error?: Failure };

const noteResult = (
  findings: Map<string, MemberResult>,
  rule: string,
  mode: Mode,
  { refused, operations, error }: MemberDecision,
) => {
  const before = findings.get(rule);
  if (!refused && operations === 0 && !error) return;
  findings.set(rule, {
    rule,
    mode,
    refused: refused || before?.refused === true,
    operations: operations + (before?.operations ?? 0),
    error: error ?? before?.error,
  });
};

const concernsMember = ({ mode, match, exempt }: Membership, request: AdmissionRequest): boolean => {
  const { namespaces = [], users = [], groups = [] } = exempt;
  const { namespace = "", userInfo } = request;
  return (
    mode !== "off" &&
    match.some((one) => matchesRequest(one, request)) &&
    !namespaces.includes(namespace) &&
    !users.includes(userInfo.username ?? "") &&
    !userInfo.groups?.some((one) => groups.includes(one))
  );
};

/** Logs members that refused or failed open in lines of their own: denials count under the rule that denies. */
const logByMember = (host: EndpointHost): EndpointHost => ({
  ...host,
  writeLogLine(report) {
    host.writeLogLine(report);
    for (const member of report.members ?? [])
      if (member.refused || member.error)
        host.writeLogLine({
          ...report,
          ...member,
          group: report.rule,
          code: member.error?.code ?? 200,
          members: undefined,
        });
  },
});
