import type { MiddlewareObj } from "@middy/core";
import type { Context } from "aws-lambda";
import { computeDeadline } from "../core/deadline.ts";
import type {
  Endpoint,
  EvaluatedReview,
  ReviewHttpAnswer,
  ReviewHttpRequest,
  ReviewToEvaluate,
} from "../core/endpoint.ts";
import { isDirectInvocation, type LambdaHttpRequest, readDirectInvocation, readLambdaEvent } from "./lambda-event.ts";

/** What `httpEvent` makes of a Lambda event for the handler: an API server's request, or a direct invocation. */
export type LambdaRequest = ReviewHttpRequest | ReviewToEvaluate;

/**
 * A middleware that converts a Lambda event to a request of an API server or a direct invocation, and the answer to the
 * event's format.
 */
export const httpEvent = ({
  answerFailure,
}: Pick<Endpoint, "answerFailure">): MiddlewareObj<unknown, unknown, Error, Context, { call?: LambdaHttpRequest }> => ({
  before: (request) => {
    const remaining = request.context.getRemainingTimeInMillis?.();
    if (isDirectInvocation(request.event)) {
      request.event = readDirectInvocation(request.event, computeDeadline({}, remaining));
      return undefined;
    }
    const call = readLambdaEvent(request.event);
    request.internal.call = call;
    // A load balancer's health check has no key in its URL, so it is answered before keys are verified.
    if (call.userAgent.startsWith("ELB-HealthChecker/")) return call.answer(200, "");
    request.event = { ...call, deadline: computeDeadline(call, remaining) } satisfies LambdaRequest;
    return undefined;
  },
  after: (request) => {
    const { call } = request.internal;
    // The casts are safe: the handler returns no other answers.
    if (call) {
      const { code, body } = request.response as ReviewHttpAnswer;
      request.response = call.answer(code, body);
    } else {
      const { response, status } = request.response as EvaluatedReview;
      request.response = response ?? status;
    }
  },
  /** Answers an event that can't be read as a request. */
  onError: async ({ error, internal: { call } }) => {
    const status = await answerFailure(error);
    return call ? call.answer(status.code, JSON.stringify(status)) : status;
  },
});
