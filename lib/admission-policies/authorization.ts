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
import { dropObservations, markObservations } from "./observations.ts";

/** Asks the cluster's authorizer. */
export type AskAuthorizer = (question: AccessQuestion) => Promise<AccessAnswer>;

/** Answers expressions with the known answers of the authorizer, and notes the questions that it has to be asked. */
export interface AuthorizationAnswers {
  decide: Decide;
  /** Asks the noted questions; resolves to false if there are none. After that, the evaluation must be repeated. */
  askMissing(): Promise<boolean>;
}

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
      const asked = [...missing];
      missing.clear();
      await Promise.all(
        asked.map(async ([key, attributes]) => {
          const { allowed, reason = "", evaluationError } = await ask(toAccessQuestion(attributes));
          answers.set(key, { allowed, reason, ...(evaluationError !== undefined && { error: evaluationError }) });
        }),
      );
      return asked.length > 0;
    },
  };
};

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

/** Evaluates a policy, and again until the authorizer has answered all that its expressions ask. */
export const evaluateWithAuthorizer = async <T>(
  request: AdmissionRequest,
  answers: AuthorizationAnswers,
  evaluate: (authorizer: PolicyInput) => T,
): Promise<T> => {
  for (;;) {
    markObservations();
    const result = evaluate(createAuthorizerVariables(request, answers.decide));
    if (!(await answers.askMissing())) return result;
    dropObservations();
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
