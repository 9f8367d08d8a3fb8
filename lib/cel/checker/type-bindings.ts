import type { Type } from "../types.ts";
import * as types from "../types.ts";

/** The most steps of a check. Without a limit, it could take too long: types can double with each `map` of a chain. */
const maxSteps = 5_000_000;

/** The error that is thrown if a check takes too many steps. */
export class TooManySteps extends Error {}

/** The types of type parameters. The check of an expression determines them one after another. */
export class TypeBindings {
  readonly #types = new Map<string, Type>();
  #changes: (readonly [name: string, before: Type | undefined])[] = [];
  #steps = 0;

  /** Reports whether each given type can be used as the wanted type. If so, binds type parameters accordingly. */
  isAssignable(given: readonly Type[], wanted: readonly Type[]): boolean {
    this.#changes = [];
    if (this.#areAssignable(given, wanted)) return true;
    for (const [name, before] of this.#changes.reverse()) {
      if (before) this.#types.set(name, before);
      else this.#types.delete(name);
    }
    return false;
  }

  /** Replaces type parameters by their types. With `isFinal`, replaces a type parameter without a type by dyn. */
  substitute(type: Type, isFinal = false): Type {
    this.countSteps(1);
    if (type.kind === "parameter") {
      const bound = this.#types.get(type.name);
      if (bound) return this.substitute(bound, isFinal);
      return isFinal ? types.dyn : type;
    }
    return mapParameters(type, (parameter) => this.substitute(parameter, isFinal));
  }

  countSteps(count: number): void {
    this.#steps += count;
    if (this.#steps > maxSteps) throw new TooManySteps();
  }

  #areAssignable(given: readonly Type[], wanted: readonly Type[]): boolean {
    return (
      given.length === wanted.length && given.every((type, index) => this.#isAssignable(type, wanted[index] as Type))
    );
  }

  #isAssignable(given: Type, wanted: Type): boolean {
    this.countSteps(1);
    if (wanted.kind === "parameter") {
      const { isBound, wasBound } = this.#bind(wanted, given);
      if (isBound || wasBound) return isBound;
    }
    if (given.kind === "parameter") return this.#bind(given, wanted).isBound;
    if (isDynOrError(given) || isDynOrError(wanted)) return true;
    if (given.kind === "null") return isNullable(wanted);
    if (wanted.kind === "null") return isNullable(given);
    if (given.kind !== wanted.kind) return false;
    if (given.kind === "type") return true;
    return given.name === wanted.name && this.#areAssignable(given.parameters, wanted.parameters);
  }

  /** Binds a type parameter to a type. If it has a type already, it gets the more general one of the two. */
  #bind(parameter: Type, type: Type): { isBound: boolean; wasBound: boolean } {
    if (types.isSameType(parameter, type)) return { isBound: true, wasBound: true };
    const before = this.#types.get(parameter.name);
    if (!before) {
      const isFree = this.#isFree(parameter, type);
      if (isFree) this.#set(parameter.name, type);
      return { isBound: isFree, wasBound: false };
    }
    if (this.#isSame(type, before)) return { isBound: true, wasBound: true };
    const isBound = this.#isAssignable(type, before);
    if (isBound) {
      const general = findMoreGeneral(type, before);
      if (this.#isFree(parameter, general)) this.#set(parameter.name, general);
    }
    return { isBound, wasBound: true };
  }

  #set(name: string, type: Type): void {
    this.#changes.push([name, this.#types.get(name)]);
    this.#types.set(name, type);
  }

  #isSame(left: Type, right: Type): boolean {
    this.countSteps(1);
    return (
      left === right ||
      (left.kind === right.kind &&
        left.name === right.name &&
        left.parameters.length === right.parameters.length &&
        left.parameters.every((type, index) => this.#isSame(type, right.parameters[index] as Type)))
    );
  }

  /** Reports whether a type parameter doesn't occur in a type. */
  #isFree(parameter: Type, type: Type): boolean {
    this.countSteps(1);
    if (type.kind !== "parameter") return type.parameters.every((inner) => this.#isFree(parameter, inner));
    if (type.name === parameter.name) return false;
    const bound = this.#types.get(type.name);
    return !bound || this.#isFree(parameter, bound);
  }
}

const mapParameters = (type: Type, replace: (parameter: Type) => Type): Type =>
  type.parameters.length === 0 ? type : { ...type, parameters: type.parameters.map(replace) };

/** Replaces the type parameters in a type of a signature. */
export const replaceParameters = (type: Type, replacements: ReadonlyMap<string, Type>): Type =>
  type.kind === "parameter"
    ? (replacements.get(type.name) ?? type)
    : mapParameters(type, (parameter) => replaceParameters(parameter, replacements));

export const isDynOrError = ({ kind }: Type): boolean => kind === "dyn" || kind === "error";

const isNullable = ({ kind }: Type): boolean =>
  kind === "null" || kind === "opaque" || kind === "struct" || kind === "duration" || kind === "timestamp";

export const findMoreGeneral = (first: Type, second: Type): Type => (isAsGeneral(first, second) ? first : second);

/**
 * Reports whether the first type is the same as the second one, or has dyn where the second one has another type. As in
 * upstream, a type parameter counts as dyn, and types such as type(int) and type(string) count as the same.
 */
const isAsGeneral = (first: Type, second: Type): boolean => {
  if (first.kind === "dyn" || first.kind === "parameter") return true;
  if (second.kind === "dyn" || second.kind === "parameter" || first.kind !== second.kind) return false;
  return (
    first.kind === "type" ||
    (first.name === second.name &&
      first.parameters.length === second.parameters.length &&
      first.parameters.every((type, index) => isAsGeneral(type, second.parameters[index] as Type)))
  );
};
