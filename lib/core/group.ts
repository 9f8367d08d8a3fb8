import "../features.ts";
import { Failure } from "../failure.ts";
import { matchesRequest, toResourceKey } from "../request-match.ts";
import type { AdmissionRequest, Patch, ReviewOutcome } from "../review.ts";
import { type RequestMatch, type Rule, rule } from "../rule.ts";
import {
  type ClusterSetup,
  createEndpoint,
  type Endpoint,
  type EndpointConfig,
  type EndpointHost,
} from "./endpoint.ts";
import {
  type EnforcementMode,
  type EvaluateRequest,
  evaluateRule,
  type GroupMemberDecision,
  type RuleDecision,
} from "./evaluation.ts";
import type { RuleException } from "./exceptions.ts";
import { applyPatch } from "./patch.ts";
import { callMutatorsInRounds } from "./reinvocation.ts";
import { explainFailure } from "./review-explanation.ts";

/**
 * The settings of one rule of a group. The group's rules share one webhook entry, which can't have a match and
 * exemptions for each rule, so the endpoint checks them.
 */
export interface GroupMemberConfig {
  mode: EnforcementMode;
  settings: object;
  match: readonly RequestMatch[];
  /** True if a request is admitted when this member of the group fails. */
  failsOpen: boolean;
  /**
   * The namespaces, users and groups whose requests are exempt from this member; the exempt resources as
   * `group/resource/subresource`; and `exceptions`, which are exemptions with an end date. Exemptions by labels of
   * namespaces apply to the whole group of rules, and the API server tests them.
   */
  exempt: {
    namespaces?: readonly string[];
    users?: readonly string[];
    groups?: readonly string[];
    resources?: readonly string[];
    exceptions?: readonly RuleException[];
  };
}

type MemberConfigs = Record<string, GroupMemberConfig>;

/**
 * The config of a group of rules. `alone` has each member's default settings, without exemptions. They are used for
 * direct invocations of the function that name no cluster, such as tests of a rule's cases.
 */
export interface GroupConfig extends EndpointConfig<MemberConfigs> {
  alone: MemberConfigs;
}

/**
 * Creates one endpoint for a group of rules that mutate (its members). All members evaluate a review in the given
 * order, and one patch answers it. A direct invocation of the function, without HTTP, can name one member, which then
 * evaluates the review. If it names neither a member nor a cluster, members get their defaults from `config.alone`.
 */
export const createGroupEndpoint = (
  members: Record<string, Rule>,
  config: GroupConfig,
  host: EndpointHost,
  evaluate = evaluateRule,
): Endpoint => {
  // For `createEndpoint`, the group is one rule. Its default settings, for reviews without a cluster, are `alone`.
  const groupAsRule = buildGroupAsRule(members, config.alone);
  const group = createEndpoint(groupAsRule, config, logByMember(host), evaluateMembers(members, evaluate));
  return {
    ...group,
    evaluateReview: (input) => {
      if (input.member === undefined) return group.evaluateReview(input);
      const [rule, endpointConfig] = selectMember(input.member, members, config);
      return createEndpoint(rule, endpointConfig, host, evaluate).evaluateReview(input);
    },
  };
};

/**
 * Returns a rule that stands for a group in `createEndpoint`. Its settings are the configs of the members: the mode,
 * settings, match and exemptions of each, by its name. Its default settings are `defaultConfigs`. It has the needs of
 * all members. Its `mutate` is never called, because `evaluateMembers` replaces the evaluation.
 */
const buildGroupAsRule = (members: Record<string, Rule>, defaultConfigs: MemberConfigs): Rule => {
  const needs = Object.assign({}, ...Object.values(members).map(({ needs }) => needs));
  return rule({ summary: "Several rules.", match: [], settings: defaultConfigs, needs, mutate() {} });
};

/**
 * Returns a member of a group and the config of an endpoint for it alone. For an unknown name, returns a rule that
 * rejects each review. `clusters` has the setups of some clusters, in which a text is the name of another cluster that
 * has the same setup; `usual` is the setup of all other clusters.
 */
const selectMember = (name: string, members: Record<string, Rule>, config: GroupConfig): [Rule, EndpointConfig] => {
  const rejectUnknownMember = () => {
    throw new Failure(400, `${config.rule} has no member "${name}"; it has ${Object.keys(members).join(", ")}`);
  };
  const member = Object.hasOwn(members, name) ? members[name] : undefined;
  const selectSetup = ({ keyVersions, settings, kubernetes }: ClusterSetup<MemberConfigs>): ClusterSetup => {
    const memberConfig = Object.hasOwn(settings, name) ? settings[name] : undefined;
    const { mode = "off", settings: memberSettings = {} } = memberConfig ?? {};
    return { keyVersions, mode, settings: memberSettings, ...(kubernetes !== undefined && { kubernetes }) };
  };
  const clusters = Object.entries(config.clusters).map(([cluster, setup]) => [
    cluster,
    typeof setup === "string" ? setup : selectSetup(setup),
  ]);
  return [
    member ?? rule({ summary: "No member.", match: [], mutate: rejectUnknownMember, validate: rejectUnknownMember }),
    {
      rule: name,
      ...(config.logs && { logs: config.logs }),
      ...(config.usual && { usual: selectSetup(config.usual) }),
      clusters: Object.fromEntries(clusters),
    },
  ];
};

/** Returns a function that calls each member that the request concerns, with the object earlier members changed. */
const evaluateMembers =
  (members: Record<string, Rule>, evaluate: EvaluateRequest): EvaluateRequest =>
  async (_, phase, request, { settings, ...context }): Promise<RuleDecision> => {
    const patch: Patch = [];
    const warnings: string[] = [];
    const audit: Record<string, string> = {};
    const outcome: ReviewOutcome = { allowed: true, warnings, audit, patch };
    const results = new Map<string, GroupMemberDecision>();
    let { object } = request;

    /** Returns whether the member changed the object; undefined if it refused, which ends the evaluation. */
    const evaluateMember = async ([name, config]: [string, GroupMemberConfig]): Promise<boolean | undefined> => {
      const { mode, settings, failsOpen, exempt } = config;
      const rule = members[name];
      if (!rule) return false;
      const earlierDecision = results.get(name) ?? { rule: name, mode, refused: false, operations: 0 };
      let decision: RuleDecision;
      try {
        // The build sets POSTERN_EXCEPTIONS to false if no cluster has exemptions with an end date.
        const exceptions = POSTERN_EXCEPTIONS ? exempt.exceptions : undefined;
        decision = await evaluate(
          rule,
          phase,
          { ...request, object },
          { ...context, name, mode, settings, exceptions },
        );
      } catch (thrown) {
        const { code, message } = await explainFailure(thrown, request);
        const error = new Failure(code, `${name}: ${message}`, { cause: thrown });
        // If the member fails open, the group's other members are called, as after the failure of such a webhook.
        if (!failsOpen || code < 500) throw error;
        results.set(name, { ...earlierDecision, error });
        return false;
      }
      const { outcome: memberOutcome, ...facts } = decision;
      // The member may have been called before, in the first round.
      const [refused, operations] = [
        earlierDecision.refused || facts.refused,
        earlierDecision.operations + facts.operations,
      ];
      results.set(name, { ...earlierDecision, ...facts, refused, operations });
      const { status } = memberOutcome;
      for (const warning of memberOutcome.warnings ?? []) warnings.push(warning);
      for (const [key, value] of Object.entries(memberOutcome.audit ?? {})) audit[`${name}.${key}`] = value;
      if (status) {
        outcome.allowed = false;
        outcome.status = { ...status, message: `${name}: ${status.message}` };
        return undefined;
      }
      for (const change of memberOutcome.patch ?? []) patch.push(change);
      object = applyPatch(object, memberOutcome.patch ?? []);
      return memberOutcome.patch !== undefined;
    };
    const membersToEvaluate = Object.entries(settings as MemberConfigs).filter(([, config]) =>
      concernsMember(config, request),
    );
    // Only members in mode enforce are called in the second round. A member in mode warn or audit has reported in the
    // first round what it would change.
    await callMutatorsInRounds(membersToEvaluate, ([, { mode }]) => mode === "enforce", evaluateMember);
    const reportedMembers = [...results.values()].filter(
      ({ refused, operations, error, message, exception }) =>
        refused || operations > 0 || error || message || exception,
    );
    return { outcome, refused: !outcome.allowed, operations: patch.length, members: reportedMembers };
  };

/** Reports whether a rule of a group is for this request, which the group's one entry has received. */
const concernsMember = ({ mode, match, exempt }: GroupMemberConfig, request: AdmissionRequest): boolean => {
  const { namespaces = [], users = [], groups = [], resources = [] } = exempt;
  const { namespace = "", userInfo, resource, subResource = "" } = request;
  return (
    mode !== "off" &&
    match.some((row) => matchesRequest(row, request)) &&
    !namespaces.includes(namespace) &&
    !users.includes(userInfo.username ?? "") &&
    !userInfo.groups?.some((group) => groups.includes(group)) &&
    !resources.includes(toResourceKey(resource.group, `${resource.resource}/${subResource}`))
  );
};

/**
 * Returns a host that also writes a log line for each member that refused or failed, or that has an exception for the
 * request. A denial thus counts in the metrics of the rule that denies.
 */
const logByMember = (host: EndpointHost): EndpointHost => ({
  ...host,
  writeLogLine(report) {
    host.writeLogLine(report);
    for (const member of report.members ?? [])
      if (member.refused || member.error || member.exception)
        host.writeLogLine({
          ...report,
          ...member,
          group: report.rule,
          code: member.error?.code ?? 200,
          members: undefined,
        });
  },
});
