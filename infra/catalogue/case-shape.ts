// The shape of the cases in a cases.yaml.
import type { RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import { minors } from "../cli/minors.ts";
import {
  allowNull,
  anyShape,
  createEnumShape,
  createMapListShape,
  createMapShape,
  flagShape,
  type InputShape,
  mapShape,
  numberShape,
  textListShape,
  textMapShape,
  textShape,
} from "../cli/shape.ts";

/** Each case has exactly one of these members. The members in `outcomesOfPolicies` are only for cases of policies. */
export const outcomes = ["becomes", "admitted", "refused", "unmatched", "fails"];
const outcomesOfPolicies = ["unmatched", "fails"];

const describeList = (description: string): InputShape => {
  return { ...createMapListShape("a list of maps"), description };
};

/** The member `needs` of a case: what the cluster and services answer to the rule. */
const needsShape: Record<keyof RecordedCapabilityAnswers, InputShape> = {
  objects: describeList("the objects that the cluster has"),
  refused: describeList("the objects that the cluster refuses to create, each with a status"),
  may: describeList("the cluster's answers to questions of rights: each has the question and allowed"),
  discovery: { ...mapShape, description: "the resources that the cluster serves, by version, such as apps/v1" },
  https: describeList("requests to services, each with an answer: { status, body }"),
  http: describeList("requests to services by http(), each with an answer: { status, body }"),
  aws: describeList("calls to AWS, each with an action and an answer: { status, body }"),
  ledger: { ...mapShape, description: "what the ledger has, by key" },
  cluster: { ...textShape, description: "the name of the cluster" },
  reads: describeList("the reads of the cluster that were recorded; any other read fails"),
  plurals: { ...textMapShape, description: "plurals of kinds that have none of the usual forms" },
};

/** The shape of an object: the members that become part of the request have the types that an API server requires. */
const objectShape = createMapShape(
  {
    apiVersion: textShape,
    kind: textShape,
    metadata: allowNull(createMapShape({ name: textShape, namespace: textShape }, anyShape)),
  },
  anyShape,
);

/** The shape of each member of a case. */
export const caseMembers: Record<keyof Case, InputShape> = {
  name: { ...textShape, description: 'a sentence that completes "it …"' },
  mutate: { ...objectShape, description: "the object that the rule may change; on DELETE, the old object" },
  validate: { ...objectShape, description: "the object that the rule admits or refuses; on DELETE, the old object" },
  oldObject: { ...objectShape, description: "the object before an update" },
  operation: {
    ...createEnumShape("CREATE, UPDATE, DELETE or CONNECT", "CREATE", "UPDATE", "DELETE", "CONNECT"),
    description: "by default UPDATE if the case has an oldObject, else CREATE",
  },
  request: {
    ...mapShape,
    description:
      "the rest of a recorded request, beside what the case's other members say; with it, no default is added to the request",
  },
  resource: { ...textShape, description: "the request's resource, such as pods/exec; by default that of the object" },
  namespace: { ...textShape, description: "the request's namespace; by default that of the object, else default" },
  user: { ...mapShape, description: "the user of the request: { username, uid, groups, extra }" },
  dryRun: { ...flagShape, description: "whether the request is a dry run", default: false },
  variant: { ...textShape, description: "the name of the rule's entry that is called, if it has several" },
  settings: { ...mapShape, description: "the settings that differ from the rule's defaults" },
  kubernetes: {
    ...createEnumShape(`a minor version in quotes: ${minors.map((minor) => `"${minor}"`).join(", ")}`, ...minors),
    description:
      "the cluster's minor version of Kubernetes; by default the newest. Only for rules that behave differently in some minor versions, as their `since` says",
  },
  needs: { ...createMapShape(needsShape), description: "what the rule's questions are answered with" },
  now: {
    expected: "a time, for instance 2026-01-01T00:00:00Z",
    description: "the time of the review",
    default: "2026-01-01T00:00:00Z",
    type: "string",
    meetsCondition: (value) => !Number.isNaN(Date.parse(String(value))),
  },
  becomes: { ...mapShape, description: "the expected object after the rule's change" },
  admitted: { ...createEnumShape("true", true), description: "the rule must admit the object" },
  unmatched: { ...createEnumShape("true", true), description: "no admission policy may match the object" },
  refused: { ...textShape, description: "the exact sentence with which the rule must refuse the object" },
  fails: { ...textShape, description: "the exact error with which the evaluation of policies must fail" },
  code: { ...numberShape, description: "the code of the refusal", default: 403 },
  reason: {
    expected: "a text or null",
    description: "the reason of the refusal; null if there is none",
    type: ["string", "null"],
  },
  details: { ...mapShape, description: "the details of the refusal; not compared without this member" },
  warnings: { ...textListShape, description: "the expected warnings" },
  audit: { ...textMapShape, description: "the expected audit annotations" },
  recorded: { ...mapShape, description: "the origin of a recorded case; tests ignore it" },
};

// The cases of rules have all members except the expectations that are only for cases of policies.
const { fails: _, unmatched: __, ...membersOfRuleCases } = caseMembers;
const requireOneOf = (...members: string[]) => {
  return { oneOf: members.map((member) => ({ required: [member] })) };
};

/** The shape of a case of a rule. */
export const caseShape: InputShape = {
  ...createMapShape(membersOfRuleCases),
  editorKeywords: {
    required: ["name"],
    allOf: [
      requireOneOf("mutate", "validate"),
      requireOneOf(...outcomes.filter((outcome) => !outcomesOfPolicies.includes(outcome))),
    ],
    not: { required: ["validate", "becomes"] },
  },
};

/** The shape of a rule's cases.yaml. */
export const casesShape: InputShape = {
  expected: "a list of cases",
  type: "array",
  items: caseShape,
  editorKeywords: { minItems: 1 },
};
