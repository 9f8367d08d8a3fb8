import {
  type AuthorizationAnswer,
  type AuthorizationAttributes,
  createAuthorizer,
  createResourceCheck,
  type Decide,
  MissingAuthorization,
} from "../cel/libraries/kubernetes/authorizer.ts";
import type { AccessAnswer, AccessQuestion } from "../needs.ts";
import type { AdmissionRequest, UserInfo } from "../review.ts";
import type { PolicyInput } from "./expressions.ts";
import { dropObservationsSinceMark, markObservations } from "./observations.ts";

/** The function that asks the cluster's authorizer. */
export type AskAuthorizer = (question: AccessQuestion) => Promise<AccessAnswer>;

/** The known answers of the authorizer, and the questions that expressions have asked without an answer. */
export interface AuthorizationAnswers {
  /** Returns a known answer. If there is none, notes the question and throws a MissingAuthorization. */
  decide: Decide;
  /** Asks the noted questions. Resolves to true if there were some: the evaluation must then be repeated. */
  askMissing(): Promise<boolean>;
}

/** Returns a store of the authorizer's answers. The key of an answer is the question as JSON. */
export const createAuthorizationAnswers = (ask: AskAuthorizer): AuthorizationAnswers => {
  const answers = new Map<string, AuthorizationAnswer>();
  const missing = new Map<string, AuthorizationAttributes>();
  return {
    decide: (attributes) => {
      const key = JSON.stringify(attributes);
      const answer = answers.get(key);
      if (answer) return answer;
      missing.set(key, attributes);
      throw new MissingAuthorization();
    },
    askMissing: async () => {
      const questions = [...missing];
      missing.clear();
      await Promise.all(
        questions.map(async ([key, attributes]) => {
          const { allowed, reason = "", evaluationError } = await ask(toAccessQuestion(attributes));
          answers.set(key, { allowed, reason, ...(evaluationError !== undefined && { error: evaluationError }) });
        }),
      );
      return questions.length > 0;
    },
  };
};

/** Converts the spec of a SubjectAccessReview to an AccessQuestion. */
const toAccessQuestion = ({ user: username, uid, groups, extra, ...attributes }: AuthorizationAttributes) => {
  const user = {
    username,
    ...(uid !== undefined && { uid }),
    ...(groups && { groups: [...groups] }),
    ...(extra && { extra: extra as NonNullable<UserInfo["extra"]> }),
  };
  if ("nonResourceAttributes" in attributes) return { user, resource: "", ...attributes.nonResourceAttributes };
  return { user, ...attributes.resourceAttributes };
};

/**
 * Evaluates a policy. Repeats the evaluation until the authorizer has answered all questions of its expressions. Tests
 * of policies collect observations of an evaluation: before it is repeated, those since the mark are dropped.
 */
export const evaluateWithAuthorizer = async <T>(
  request: AdmissionRequest,
  answers: AuthorizationAnswers,
  evaluate: (authorizer: PolicyInput) => T,
): Promise<T> => {
  for (;;) {
    markObservations();
    const result = evaluate(createAuthorizerVariables(request, answers.decide));
    if (!(await answers.askMissing())) return result;
    dropObservationsSinceMark();
  }
};

/** Returns the variables `authorizer` and `authorizer.requestResource` for a request. */
export const createAuthorizerVariables = (request: AdmissionRequest, decide: Decide) => {
  const { username = "", ...user } = request.userInfo;
  const authorizer = createAuthorizer({ user: username, ...user }, decide);
  const { group, resource } = request.requestResource ?? request.resource;
  const subresource = request.requestSubResource ?? request.subResource;
  const { namespace, name } = request;
  const attributes = {
    group,
    resource,
    ...(subresource && { subresource }),
    ...(namespace && { namespace }),
    ...(name && { name }),
  };
  return { authorizer, "authorizer.requestResource": createResourceCheck(authorizer, attributes) };
};
