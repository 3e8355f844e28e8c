// What `freestone compare` compiles: a stack machine, its parser and an optimiser, in templates and small classes. It
// includes nothing, so that every machine compiles the same.
using size = decltype(sizeof 0);

template <class T>
class List {
 public:
  List() = default;
  List(const List& other) {
    for (const T& item : other) push(item);
  }
  List(List&& other) noexcept : items_(other.items_), count_(other.count_), room_(other.room_) {
    other.items_ = nullptr;
    other.count_ = other.room_ = 0;
  }
  List& operator=(List other) noexcept {
    T* items = items_;
    items_ = other.items_;
    other.items_ = items;
    const size count = count_, room = room_;
    count_ = other.count_;
    room_ = other.room_;
    other.count_ = count;
    other.room_ = room;
    return *this;
  }
  ~List() { delete[] items_; }
  void push(T item) {
    if (count_ == room_) grow();
    items_[count_++] = static_cast<T&&>(item);
  }
  T pop() { return static_cast<T&&>(items_[--count_]); }
  T& operator[](size i) { return items_[i]; }
  const T& operator[](size i) const { return items_[i]; }
  size count() const { return count_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + count_; }

 private:
  void grow() {
    room_ = room_ == 0 ? 8 : 2 * room_;
    T* moved = new T[room_];
    for (size i = 0; i < count_; ++i) moved[i] = static_cast<T&&>(items_[i]);
    delete[] items_;
    items_ = moved;
  }
  T* items_ = nullptr;
  size count_ = 0;
  size room_ = 0;
};

enum class Op : unsigned char { push, add, subtract, multiply, divide, negate, load, store, jump, branch, call, stop };

struct Step {
  Op op = Op::stop;
  long value = 0;
};

struct Result {
  List<Step> steps;
  const char* error = nullptr;
};

class Parser {
 public:
  explicit Parser(const char* text) : at_(text) {}
  Result parse() {
    while (skip(), *at_ != 0 && result_.error == nullptr) statement();
    emit(Op::stop);
    return static_cast<Result&&>(result_);
  }

 private:
  void statement() {
    if (take('{')) {
      while (skip(), *at_ != 0 && *at_ != '}') statement();
      expect('}');
    } else if (take('?')) {
      expression(0);
      const size from = result_.steps.count();
      emit(Op::branch);
      statement();
      result_.steps[from].value = static_cast<long>(result_.steps.count());
    } else {
      const long name = word();
      expect('=');
      expression(0);
      emit(Op::store, name);
      expect(';');
    }
  }
  void expression(int least) {
    operand();
    for (;;) {
      skip();
      const int strength = binding(*at_);
      if (strength == 0 || strength <= least) return;
      const char sign = *at_++;
      expression(strength);
      switch (sign) {
        case '+': emit(Op::add); break;
        case '-': emit(Op::subtract); break;
        case '*': emit(Op::multiply); break;
        default: emit(Op::divide); break;
      }
    }
  }
  void operand() {
    skip();
    if (take('-')) {
      operand();
      emit(Op::negate);
    } else if (take('(')) {
      expression(0);
      expect(')');
    } else if (*at_ >= '0' && *at_ <= '9') {
      long value = 0;
      for (; *at_ >= '0' && *at_ <= '9'; ++at_) value = 10 * value + (*at_ - '0');
      emit(Op::push, value);
    } else {
      emit(Op::load, word());
    }
  }
  long word() {
    skip();
    long hash = 0;
    const char* from = at_;
    for (; *at_ >= 'a' && *at_ <= 'z'; ++at_) hash = (hash * 31 + *at_) % 4093;
    if (at_ == from) fail("a name was expected");
    return hash;
  }
  static int binding(char sign) { return sign == '+' || sign == '-' ? 1 : sign == '*' || sign == '/' ? 2 : 0; }
  void skip() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\t') ++at_;
  }
  bool take(char wanted) {
    skip();
    if (*at_ != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail("a sign is missing");
  }
  void fail(const char* why) {
    if (result_.error == nullptr) result_.error = why;
    while (*at_ != 0) ++at_;
  }
  void emit(Op op, long value = 0) { result_.steps.push({op, value}); }

  const char* at_;
  Result result_;
};

template <long kValue>
struct Power {
  static long of(long base) {
    const long half = Power<kValue / 2>::of(base);
    return kValue % 2 == 0 ? half * half : half * half * base;
  }
};
template <>
struct Power<0> {
  static long of(long) { return 1; }
};

template <class First, class Second>
struct Both {
  First first;
  Second second;
  bool operator()(Step& step) const { return first(step) | second(step); }
};

struct Fold {
  bool operator()(Step& step) const {
    if (step.op != Op::multiply || step.value != 1) return false;
    step = {Op::add, 0};
    return true;
  }
};
struct Lower {
  bool operator()(Step& step) const {
    if (step.op != Op::divide || step.value == 0) return false;
    step.value = Power<5>::of(step.value) + Power<12>::of(step.value) - Power<9>::of(step.value);
    return true;
  }
};

template <class Pass>
size improve(List<Step>& steps, const Pass& pass) {
  size changed = 0;
  for (size i = 0; i < steps.count(); ++i) changed += pass(steps[i]) ? 1 : 0;
  return changed;
}

long run(const List<Step>& steps, List<long>& memory, long most) {
  List<long> stack;
  long done = 0;
  for (size at = 0; at < steps.count() && done < most; ++at, ++done) {
    const Step& step = steps[at];
    long right = 0;
    switch (step.op) {
      case Op::push: stack.push(step.value); break;
      case Op::add: right = stack.pop(), stack.push(stack.pop() + right); break;
      case Op::subtract: right = stack.pop(), stack.push(stack.pop() - right); break;
      case Op::multiply: right = stack.pop(), stack.push(stack.pop() * right); break;
      case Op::divide: right = stack.pop(), stack.push(right == 0 ? 0 : stack.pop() / right); break;
      case Op::negate: stack.push(-stack.pop()); break;
      case Op::load: stack.push(memory[static_cast<size>(step.value)]); break;
      case Op::store: memory[static_cast<size>(step.value)] = stack.pop(); break;
      case Op::jump: at = static_cast<size>(step.value) - 1; break;
      case Op::branch:
        if (stack.pop() == 0) at = static_cast<size>(step.value) - 1;
        break;
      case Op::call: stack.push(Power<7>::of(stack.pop())); break;
      case Op::stop: return done;
    }
  }
  return done;
}

long machine(const char* text, long most) {
  Result parsed = Parser(text).parse();
  if (parsed.error != nullptr) return -1;
  while (improve(parsed.steps, Both<Fold, Both<Lower, Fold>>{}) != 0 && most > 0) --most;
  List<long> memory;
  for (int i = 0; i < 4093; ++i) memory.push(0);
  return run(parsed.steps, memory, most);
}
